//! A file system in memory that can lose power, for crash tests.
//!
//! [`SimFs`] keeps, beside what a process sees, what the medium holds. Content is durable after
//! [`crate::FsFile::sync_data`]. A name is durable after [`crate::Fs::sync_dir`] of the directory
//! that it stands in, and only as far as that directory's own name is. [`SimFs::crash`] reduces the
//! process's view to what survives: any subset of the unsynced sectors and names, and garbage in
//! whole pages of 4 KiB, as the chosen [`Crash`] has it. Faults can be planted before: an error at
//! the n-th operation, a limit of space for all files or those below a directory, a flipped byte,
//! an emptied directory. Everything repeats from a seed.
//!
//! It is part of the crate's interface so that a crate that builds on the log can crash it too.

mod crash;
mod disk;
mod files;
mod inode;
mod random;

pub use crash::Crash;
pub use files::{Fault, SimFs};
