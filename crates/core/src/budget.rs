//! How much one entry may do, so that no storm of ends stalls the cluster: the rest follows with
//! the ticks that the leader logs at once while anything is due.

use crate::settings::{ENDS_PER_ENTRY_MAX, GRANTS_PER_ENTRY_MAX};

/// Deadlines that one entry looks at without anything coming of it: sessions that were renewed.
const LOOKS_PER_ENTRY_MAX: u32 = 20_000;

/// Idle names that one entry forgets. Its own, so that they take no time from what clients wait for.
const FORGETS_PER_ENTRY_MAX: u32 = 2_000;

/// What is left of one entry's work.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    sessions: u32,
    endings: u32,
    grants: u32,
    looks: u32,
    forgets: u32,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self {
            sessions: ENDS_PER_ENTRY_MAX,
            endings: GRANTS_PER_ENTRY_MAX,
            grants: GRANTS_PER_ENTRY_MAX,
            looks: LOOKS_PER_ENTRY_MAX,
            forgets: FORGETS_PER_ENTRY_MAX,
        }
    }

    /// Whether another deadline may be looked at; counts it.
    pub(crate) fn look(&mut self) -> bool {
        // Any of the three: one session may hold 4,096 leases, and a renewed one ends nothing.
        if self.sessions == 0 || self.endings == 0 || self.looks == 0 {
            return false;
        }
        self.looks -= 1;
        true
    }

    /// Whether another idle name may be forgotten; counts it.
    pub(crate) fn forget(&mut self) -> bool {
        let left = self.forgets.checked_sub(1);
        self.forgets = left.unwrap_or(0);
        left.is_some()
    }

    /// Counts a session that ended with so many grants and waits. One session's end is never cut
    /// in two, so the last one may overdraw by the most that a session can have.
    pub(crate) fn session_ended(&mut self, endings: usize) {
        self.sessions = self.sessions.saturating_sub(1);
        self.endings = self
            .endings
            .saturating_sub(u32::try_from(endings).unwrap_or(u32::MAX));
    }

    /// Counts a wait that ended.
    pub(crate) fn wait_ended(&mut self) {
        self.endings = self.endings.saturating_sub(1);
    }

    /// Whether another queue may be served; counts it.
    pub(crate) fn serve(&mut self) -> bool {
        if self.grants == 0 {
            return false;
        }
        self.grants -= 1;
        true
    }
}
