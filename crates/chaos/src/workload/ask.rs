//! What clients ask of a store, and what it answers and keeps.

use ringfence_check::history::{Admission, GuardAct};
use ringfence_guard::Fence;

/// What a client wants of a store.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) client: u32,
    pub(super) fence: Fence,
    pub(super) act: GuardAct,
    /// What is written.
    pub(super) value: i64,
}

/// What a store answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) admission: Admission,
    /// Its place among the commits of this lease's data.
    pub(super) commit: Option<u64>,
    /// What was read.
    pub(super) value: Option<i64>,
}

impl Answer {
    pub(super) const FAILED: Self = Self {
        admission: Admission::Failed,
        commit: None,
        value: None,
    };
}

/// A committed step, as the journal has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its place, from 1.
    pub(crate) place: u64,
    /// The token that was shown.
    pub(crate) token: u64,
    /// What was written; nothing for an advance.
    pub(crate) amount: Option<i64>,
}
