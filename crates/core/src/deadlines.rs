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
}

impl Deadlines {
    /// The longest idle lease of `all`, and nothing else.
    pub(crate) fn of_longest_idle(all: &Self) -> Self {
        Self {
            idle: all.idle.first().cloned().into_iter().collect(),
            ..Self::default()
        }
    }

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
    /// order. Idle leases are apart: see [`Deadlines::pop_idle`]. Below
    /// [`LEVEL_REPEATS`](crate::LEVEL_REPEATS) `looks` stands in for blocked and idle leases.
    pub(crate) fn pop(&mut self, now: ClusterTime, looks: Option<&mut Looks>) -> Option<Due> {
        let session = self.sessions.first().map(|due| due.0);
        let wait = self.waits.first().map(|due| due.0);
        let block = self.blocks.first().map(|due| due.0);
        let lease = looks.as_ref().map_or(block, |looks| looks.first());
        let next = [session, wait, lease].into_iter().flatten().min();
        let next = next.filter(|at| *at <= now);
        // Compared in this order: among equal times that of the kinds decides, alike on every replica.
        if next.is_none() {
            None
        } else if session == next {
            let first = self.sessions.pop_first();
            first.map(|(_, id)| Due::Session(id))
        } else if wait == next {
            let first = self.waits.pop_first();
            first.map(|(_, place, name)| Due::Wait { place, name })
        } else if let Some(looks) = looks {
            looks.pop().map(|(at, name)| Due::Look(at, name))
        } else {
            let first = self.blocks.pop_first();
            first.map(|(_, name)| Due::Block(name))
        }
    }

    /// Takes the lease that has been idle for the longest time, if that is one retention. No client waits
    /// for it to be forgotten, so it comes after all that is due: a retention that is lowered over
    /// millions of names must not keep a holder that is gone.
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

    /// The first time of all; with `looks` as in [`Deadlines::pop`].
    pub(crate) fn next(&self, idle: Millis, looks: Option<&Looks>) -> Option<ClusterTime> {
        let block = self.blocks.first().map(|due| due.0);
        let idle = self.idle.first().map(|due| due.0.after(idle));
        let leases = looks.map_or([block, idle], |looks| [looks.first(), None]);
        let session = self.sessions.first().map(|due| due.0);
        let wait = self.waits.first().map(|due| due.0);
        [session, wait].into_iter().chain(leases).flatten().min()
    }
}
