//! What waits for cluster time, in the order in which it is judged.

use alloc::collections::BTreeSet;

use crate::id::SessionId;
use crate::lease::LeaseDue;
use crate::looks::Looks;
use crate::name::LeaseName;
use crate::time::{ClusterTime, Millis};

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
    /// A lease is blocked no longer.
    Block(LeaseName),
    /// A lease is to be looked at, since this time: see [`Looks`].
    Look(ClusterTime, LeaseName),
}

/// An ordered set of deadlines.
///
/// Waits and blocks stand at their exact time. Sessions stand at a time that is never *later* than
/// their deadline: a keep-alive moves the deadline only, and the set is corrected when the old time
/// comes. That makes a renewal free of any search here. It is right only because nothing moves a
/// session's deadline to an earlier time. Idle leases stand at the time since which they have been
/// idle, so that a change of the retention, longer or shorter, holds for all of them at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines {
    // Apart, since most are of sessions and need no room for a name.
    sessions: BTreeSet<(ClusterTime, SessionId)>,
    waits: BTreeSet<(ClusterTime, u64, LeaseName)>,
    blocks: BTreeSet<(ClusterTime, LeaseName)>,
    idle: BTreeSet<(ClusterTime, LeaseName)>,
    /// What stands in for the blocks and the idle leases until the level says otherwise.
    pub(crate) looks: Looks,
}

impl Deadlines {
    pub(crate) fn insert_session(&mut self, at: ClusterTime, id: SessionId) {
        self.sessions.insert((at, id));
    }

    pub(crate) fn remove_session(&mut self, at: ClusterTime, id: SessionId) {
        self.sessions.remove(&(at, id));
    }

    pub(crate) fn insert_wait(&mut self, at: ClusterTime, place: u64, name: LeaseName) {
        self.waits.insert((at, place, name));
    }

    pub(crate) fn remove_wait(&mut self, at: ClusterTime, place: u64, name: LeaseName) {
        self.waits.remove(&(at, place, name));
    }

    /// Moves a lease from where it may stand to where it belongs.
    pub(crate) fn move_lease(
        &mut self,
        name: &LeaseName,
        from: Option<LeaseDue>,
        to: Option<LeaseDue>,
    ) {
        if from == to {
            return;
        }
        match from {
            Some(LeaseDue::Block(at)) => drop(self.blocks.remove(&(at, name.clone()))),
            Some(LeaseDue::Idle(at)) => drop(self.idle.remove(&(at, name.clone()))),
            None => {}
        }
        match to {
            Some(LeaseDue::Block(at)) => drop(self.blocks.insert((at, name.clone()))),
            Some(LeaseDue::Idle(at)) => drop(self.idle.insert((at, name.clone()))),
            None => {}
        }
    }

    /// The lease that has been idle for the longest time; among equals the first by name.
    pub(crate) fn longest_idle(&self) -> Option<&LeaseName> {
        self.idle.first().map(|(_, name)| name)
    }

    /// Takes the first one that is not later than `now`; among equal times the kinds come in their
    /// order. Idle leases are apart: see [`Deadlines::pop_idle`].
    pub(crate) fn pop(&mut self, now: ClusterTime) -> Option<Due> {
        let block = self.blocks.first().map(|due| due.0);
        self.pop_before(block, now).or_else(|| {
            let due = block.is_some_and(|at| at <= now);
            let block = due.then(|| self.blocks.pop_first()).flatten();
            block.map(|(_, name)| Due::Block(name))
        })
    }

    /// The same below [`LEVEL_REPEATS`](crate::LEVEL_REPEATS): blocked and idle leases come together,
    /// when they are looked at.
    pub(crate) fn pop_below_repeats(&mut self, now: ClusterTime) -> Option<Due> {
        let look = self.looks.first();
        self.pop_before(look, now).or_else(|| {
            let due = look.is_some_and(|at| at <= now);
            let look = due.then(|| self.looks.pop()).flatten();
            look.map(|(at, name)| Due::Look(at, name))
        })
    }

    /// Takes the first session or wait that is due by `now` and not later than the first lease.
    fn pop_before(&mut self, lease: Option<ClusterTime>, now: ClusterTime) -> Option<Due> {
        let [session, wait] = self.firsts();
        let next = [session, wait, lease].into_iter().flatten().min()?;
        if next > now {
            return None;
        }
        if session == Some(next) {
            self.sessions.pop_first().map(|(_, id)| Due::Session(id))
        } else if wait == Some(next) {
            let first = self.waits.pop_first();
            first.map(|(_, place, name)| Due::Wait { place, name })
        } else {
            None
        }
    }

    /// Takes the lease that has been idle for the longest time, if that is one retention. No client
    /// waits for it to be forgotten, so it comes after all that is due: a retention that is lowered
    /// over millions of names must not keep a holder that is gone.
    pub(crate) fn pop_idle(
        &mut self,
        now: ClusterTime,
        idle_retention: Millis,
    ) -> Option<LeaseName> {
        let (since, _) = self.idle.first()?;
        if since.after(idle_retention) > now {
            return None;
        }
        self.idle.pop_first().map(|(_, name)| name)
    }

    /// The first time of a session and of a wait.
    fn firsts(&self) -> [Option<ClusterTime>; 2] {
        [
            self.sessions.first().map(|due| due.0),
            self.waits.first().map(|due| due.0),
        ]
    }

    /// The first time of all.
    pub(crate) fn next(&self, idle_retention: Millis) -> Option<ClusterTime> {
        let block = self.blocks.first().map(|due| due.0);
        let idle = self.idle.first().map(|due| due.0.after(idle_retention));
        let times = self.firsts().into_iter().chain([block, idle]);
        times.flatten().min()
    }

    /// The same below [`LEVEL_REPEATS`](crate::LEVEL_REPEATS).
    pub(crate) fn next_below_repeats(&self) -> Option<ClusterTime> {
        let times = self.firsts().into_iter().chain([self.looks.first()]);
        times.flatten().min()
    }
}
