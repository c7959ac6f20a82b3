//! What a run says while it goes on, and why it does not come about.

use std::io;

use crate::schedule::ScheduleError;

/// What is shown to people while the run goes on.
#[derive(Clone, Debug)]
pub enum Say {
    /// A line that stays.
    Line(String),
    /// How things stand now; replaces what was said so before.
    Now(String),
}

/// Why there is no verdict at all.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The schedule cannot be had.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// This machine is no Linux machine.
    #[error(
        "Linux only: the run needs network namespaces, mounts and limits of another process's \
         files"
    )]
    LinuxOnly,
    /// None of the faults can be had on this machine.
    #[error("no fault can be had on this machine: {why}")]
    NoFaults {
        /// What is missing.
        why: String,
    },
    /// Something could not be made or started.
    #[error("cannot {what}: {cause}")]
    Setup {
        /// What.
        what: &'static str,
        /// Why.
        cause: io::Error,
    },
    /// The cluster that is there already cannot be worked on.
    #[error("the target does not serve: {cause}")]
    NotReached {
        /// Why.
        cause: io::Error,
    },
    /// The cluster did not form.
    #[error("the cluster does not serve: {why}")]
    NotFormed {
        /// How the nodes stand.
        why: String,
    },
}
