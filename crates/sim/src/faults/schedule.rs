//! Which faults a run has, and when.

use std::time::Duration;

use super::Fault;

/// A fault in its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// When it begins, behind the beginning of the run.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// What it is.
    pub fault: Fault,
}
