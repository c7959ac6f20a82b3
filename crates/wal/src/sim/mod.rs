//! A file system in memory that can lose power, for crash tests.
//!
//! [`SimFs`] keeps, beside what a process sees, what the medium holds. Content is durable after
//! [`crate::FsFile::sync_data`], names after [`crate::Fs::sync_dir`]. [`SimFs::crash`] brings the
//! process's view down to what survives: any subset of the unsynced sectors and names, as the
//! chosen [`Crash`] has it. Faults can be planted before: an error at the n-th operation, a limit
//! of space, a flipped byte. Everything repeats from a seed.
//!
//! It is part of the crate's interface so that whoever builds on the log can crash it too.

mod disk;
mod files;
mod random;

pub use files::{Crash, Fault, SimFs};
