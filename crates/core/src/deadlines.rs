//! What waits for cluster time, in the order in which it is judged.

use alloc::collections::BTreeSet;

use crate::id::SessionId;
use crate::name::LeaseName;
use crate::time::ClusterTime;

/// What is looked at when its time has come. The order of the variants and of their numbers is
/// the order among equal times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A session may have run out of time.
    Session(SessionId),
    /// A wait is over.
    Wait {
        /// The place in the queue.
        place: u64,
        /// Whose queue.
        name: LeaseName,
    },
    /// A lease is blocked no longer, or has been idle for long enough to be forgotten.
    Lease(LeaseName),
}

/// An ordered set of deadlines.
///
/// Waits stand at their exact time. Sessions and leases stand at a time that is never *later*
/// than their deadline: a keep-alive moves the deadline only, and the set is told when the old
/// time comes. That makes a renewal free of any search here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines(BTreeSet<(ClusterTime, Due)>);

impl Deadlines {
    pub(crate) fn insert(&mut self, at: ClusterTime, due: Due) {
        self.0.insert((at, due));
    }

    pub(crate) fn remove(&mut self, at: ClusterTime, due: Due) {
        self.0.remove(&(at, due));
    }

    /// Takes the first one that is not later than `now`.
    pub(crate) fn pop(&mut self, now: ClusterTime) -> Option<Due> {
        if self.0.first()?.0 > now {
            return None;
        }
        self.0.pop_first().map(|(_, due)| due)
    }

    pub(crate) fn next(&self) -> Option<ClusterTime> {
        self.0.first().map(|(at, _)| *at)
    }
}
