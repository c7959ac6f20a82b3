//! The client's bad days, with real processes: it is stopped, blocked, cut off, lied to, and its
//! servers die. A name that begins with `pain_` carries a number of `client/KNOWN-PROBLEMS.md`.
#![allow(clippy::unwrap_used)]

mod crowds;
mod cutting;
mod leaders;
mod names;
mod namespaces;
mod pausing;
mod proxy;
mod restarts;
mod stale_writes;
mod support;
mod table;
mod thousand_cuts;
