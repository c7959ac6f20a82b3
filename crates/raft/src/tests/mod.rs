//! Tests of several modules at once, and what fuzz targets call. Nothing here is shipped.
//!
//! [`decoders`] feeds any bytes to every reader of files and messages, `golden` holds the bytes that
//! were written once, `log_suite` and `snapshot_suite` run the storage under openraft's tests and ours, and `mode_suite`
//! tests what is remembered of modes.
//! Tests of a whole cluster are in `tests/cluster`.

pub mod decoders;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod log_suite;
#[cfg(test)]
mod mode_suite;
#[cfg(test)]
mod snapshot_suite;
