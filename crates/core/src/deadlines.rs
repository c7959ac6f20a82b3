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
pub(crate) struct Deadlines {
    // Apart, since most are of sessions and need no room for a name.
    sessions: BTreeSet<(ClusterTime, SessionId)>,
    waits: BTreeSet<(ClusterTime, u64, LeaseName)>,
    leases: BTreeSet<(ClusterTime, LeaseName)>,
}

impl Deadlines {
    pub(crate) fn insert(&mut self, at: ClusterTime, due: Due) {
        match due {
            Due::Session(id) => self.sessions.insert((at, id)),
            Due::Wait { place, name } => self.waits.insert((at, place, name)),
            Due::Lease(name) => self.leases.insert((at, name)),
        };
    }

    pub(crate) fn remove(&mut self, at: ClusterTime, due: Due) {
        match due {
            Due::Session(id) => self.sessions.remove(&(at, id)),
            Due::Wait { place, name } => self.waits.remove(&(at, place, name)),
            Due::Lease(name) => self.leases.remove(&(at, name)),
        };
    }

    /// The first time of each kind.
    fn firsts(&self) -> [Option<ClusterTime>; 3] {
        [
            self.sessions.first().map(|due| due.0),
            self.waits.first().map(|due| due.0),
            self.leases.first().map(|due| due.0),
        ]
    }

    /// Takes the first one that is not later than `now`.
    pub(crate) fn pop(&mut self, now: ClusterTime) -> Option<Due> {
        let next = self.next().filter(|next| *next <= now);
        let [session, wait, _] = self.firsts();
        // Among equal times the kinds come in their order.
        if session == Some(next?) {
            self.sessions.pop_first().map(|(_, id)| Due::Session(id))
        } else if wait == next {
            let first = self.waits.pop_first();
            first.map(|(_, place, name)| Due::Wait { place, name })
        } else {
            self.leases.pop_first().map(|(_, name)| Due::Lease(name))
        }
    }

    pub(crate) fn next(&self) -> Option<ClusterTime> {
        self.firsts().into_iter().flatten().min()
    }
}
