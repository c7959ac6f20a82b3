//! Until when a lease hears of a session, and who may hold a grant that no session claimed.
//!
//! After its last word a session is only a name: nothing more depends on which one it is. So of all
//! the silent sessions that may have been granted a lease only the one that can end first matters,
//! and the search stays as quick however many requests were never answered.

use std::collections::{BTreeSet, HashMap};

use super::super::partition::{Lease, Timed};
use super::super::spec::{State, Step};

/// What is known of sessions at the moment that the search has come to.
pub(super) struct Words<'a> {
    lease: &'a Lease,
    /// The number of the moment.
    at: usize,
    /// By session: the last moment at which something is said of it.
    last: HashMap<u64, usize>,
    /// Sessions whose last word is said at this moment.
    ends: HashMap<usize, Vec<u64>>,
    /// How many of those in `lease.unanswered.in_order` have asked by now.
    asked: usize,
    /// Those that have asked without an answer, and of whom more will be heard.
    talking: BTreeSet<u64>,
    /// And those of whom nothing more will be: from when on each may have ended.
    silent: BTreeSet<(u64, u64)>,
    /// The greatest token that was seen and belongs to no session; 0 if each belongs to one.
    unclaimed: u64,
}

impl<'a> Words<'a> {
    pub(super) fn of(lease: &'a Lease, moments: &[(u64, bool, u32)]) -> Self {
        let last = last_words(&lease.steps, moments);
        let mut ends: HashMap<usize, Vec<u64>> = HashMap::new();
        for (&session, &at) in &last {
            ends.entry(at).or_default().push(session);
        }
        let unclaimed = lease.ghosts.iter().filter(|ghost| ghost.session.is_none());
        Self {
            lease,
            at: 0,
            last,
            ends,
            asked: 0,
            talking: BTreeSet::new(),
            silent: BTreeSet::new(),
            unclaimed: unclaimed.map(|ghost| ghost.token).max().unwrap_or(0),
        }
    }

    /// Goes on to this moment.
    pub(super) fn go_to(&mut self, at: usize, now: u64) {
        self.at = at;
        if self.unclaimed == 0 {
            return;
        }
        let waiting = self.lease.unanswered.in_order.get(self.asked..);
        for &(from, session) in waiting.into_iter().flatten() {
            if from > now {
                break;
            }
            self.asked += 1;
            match self.is_over(session) {
                true => self.fall_silent(session),
                false => drop(self.talking.insert(session)),
            }
        }
    }

    /// The sessions of which nothing is heard after this moment.
    pub(super) fn leave(&mut self) -> Vec<u64> {
        let over = self.ends.remove(&self.at).unwrap_or_default();
        for session in &over {
            if self.talking.remove(session) {
                self.fall_silent(*session);
            }
        }
        over
    }

    fn fall_silent(&mut self, session: u64) {
        let from = self.lease.session_may_end.get(&session);
        self.silent.insert((from.copied().unwrap_or(0), session));
    }

    fn is_over(&self, session: u64) -> bool {
        self.last.get(&session).is_none_or(|&last| last < self.at)
    }

    /// Whether it makes a difference that this session has ended: more is heard of it, or it may
    /// be one of those who hold what no session claimed.
    pub(super) fn must_remember(&self, session: u64, max: u64) -> bool {
        !self.is_over(session) || self.may_be_a_stranger(session, max)
    }

    /// Whether a session of which nothing more is heard may still hold what no session claimed.
    pub(super) fn may_be_a_stranger(&self, session: u64, max: u64) -> bool {
        max < self.unclaimed && self.lease.unanswered.names(session)
    }

    /// The sessions that may have been granted what no session claimed; of those that are silent,
    /// the one that may end first can do all that the others can.
    pub(super) fn strangers<'b>(&'b self, state: &'b State) -> impl Iterator<Item = u64> + 'b {
        let alive = |session: &u64| !state.is_dead(*session);
        let silent = self.silent.iter().map(|&(_, session)| session);
        let talking = self.talking.iter().copied();
        talking.filter(alive).chain(silent.filter(alive).take(1))
    }
}

/// The moment at which the last thing is said of each session.
fn last_words(steps: &[Timed], moments: &[(u64, bool, u32)]) -> HashMap<u64, usize> {
    let mut last: HashMap<u64, usize> = HashMap::new();
    for (at, &(_, _, step)) in moments.iter().enumerate() {
        let timed = &steps[step as usize];
        let session = match timed.step {
            Step::Grant { session, .. }
            | Step::Release { session, .. }
            | Step::Kill { session }
            | Step::Dead { session }
            | Step::HeldByOther { session, .. }
            | Step::Held {
                session: Some(session),
                ..
            } => Some(session),
            Step::Transfer { to, .. } => Some(to),
            _ => None,
        };
        for session in session.into_iter().chain(timed.by) {
            last.insert(session, at);
        }
    }
    last
}
