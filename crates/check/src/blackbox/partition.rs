//! Splits a history by lease, and says of each operation what it did to the lease.
//!
//! What ends a session ends it on every lease, so each lease gets a copy of it; that several leases
//! end at the same instant is not checked here.

mod ghosts;
mod read;

use std::collections::{HashMap, HashSet};

use super::Told;
use super::spec::Step;
use crate::lives::Lives;
use crate::recording::Recording;
use crate::verdict::{Rule, Violation};

/// An answered operation, as one lease sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) step: Step,
    /// The session that was answered otherwise than that it has ended, so it had not.
    pub(super) by: Option<u64>,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Where the operation stands in the recording; none for what came without a request.
    pub(super) operation: Option<usize>,
}

/// A hand-over of which it is unknown whether it came about.
#[derive(Clone, Copy, Debug)]
pub(super) struct MayTransfer {
    pub(super) session: u64,
    pub(super) to: Option<u64>,
    pub(super) from: u64,
}

/// A grant that no client received as its answer, but whose token was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ghost {
    pub(super) token: u64,
    /// Whose it was, if anybody who saw it said so.
    pub(super) session: Option<u64>,
    /// When the last of those began who found it in force.
    pub(super) held_until: u64,
    /// When the last of those began who found no greater token.
    pub(super) newest_until: u64,
}

/// Since when whom the lease may have been granted by an acquire without an answer.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    by_session: HashMap<u64, u64>,
    /// Of a session that is not known, since the answer that names it was lost.
    pub(super) by_anybody: Option<u64>,
    /// Time and session, in the order of time.
    pub(super) in_order: Vec<(u64, u64)>,
}

impl Unanswered {
    /// Whether this session has asked without an answer.
    pub(super) fn names(&self, session: u64) -> bool {
        self.by_session.contains_key(&session)
    }

    /// Since when this session may have been granted it.
    pub(super) fn since(&self, session: u64) -> Option<u64> {
        let own = self.by_session.get(&session).copied();
        own.into_iter().chain(self.by_anybody).min()
    }
}

/// A token that was seen although no client can have been granted it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FromNowhere {
    pub(super) token: u64,
    pub(super) seen_by: usize,
}

impl FromNowhere {
    pub(super) fn violation(&self, recording: &Recording, lease: &str) -> Violation {
        let operation = &recording.operations[self.seen_by];
        Violation {
            rule: Rule::I6,
            t: operation.end.unwrap_or(operation.begin),
            lease: Some(lease.to_owned()),
            operations: vec![operation.id],
            what: format!(
                "token {} of lease {lease} was never granted to anybody, and yet it is known to {}",
                self.token,
                Told::of(recording).operation(operation)
            ),
        }
    }
}

/// What happened to one lease.
#[derive(Debug, Default)]
pub(super) struct Lease {
    pub(super) name: String,
    pub(super) steps: Vec<Timed>,
    /// From when on the grant with this token may have ended by an operation of unknown outcome.
    pub(super) token_may_end: HashMap<u64, u64>,
    /// From when on an operator may have revoked the grant with this token, unseen.
    pub(super) token_may_be_revoked: HashMap<u64, u64>,
    /// From when on this session may have ended.
    pub(super) session_may_end: HashMap<u64, u64>,
    /// By the token that may have been handed over.
    pub(super) may_transfer: HashMap<u64, Vec<MayTransfer>>,
    /// In the order of their tokens.
    pub(super) ghosts: Vec<Ghost>,
    pub(super) unanswered: Unanswered,
    pub(super) from_nowhere: Vec<FromNowhere>,
    /// Acquires of which it is unknown whether they were granted.
    open_ended: Vec<OpenEnded>,
    /// And when each was first heard of here.
    sessions: HashMap<u64, u64>,
}

/// An acquire that may have been granted; its session is not known if it came with an `open` that
/// was not answered.
#[derive(Clone, Copy, Debug)]
struct OpenEnded {
    session: Option<u64>,
    from: u64,
}

/// All leases of a history.
#[derive(Debug)]
pub(super) struct Partition {
    /// In the order of their names.
    pub(super) leases: Vec<Lease>,
}

impl Lease {
    /// The ghost with this token.
    pub(super) fn ghost(&self, token: u64) -> Option<&Ghost> {
        let at = self
            .ghosts
            .binary_search_by_key(&token, |ghost| ghost.token);
        at.ok().map(|at| &self.ghosts[at])
    }
}

impl Partition {
    pub(super) fn of(recording: &Recording, lives: &Lives) -> Self {
        let mut leases = read::read(recording);
        for lease in leases.values_mut() {
            merge_transfers(&mut lease.steps);
            for &session in lease.sessions.keys() {
                let from = lives.ends_not_before(session);
                lease.session_may_end.insert(session, from);
            }
            ghosts::look_for(lease);
        }
        let mut leases: Vec<Lease> = leases.into_values().collect();
        leases.sort_by(|a, b| a.name.cmp(&b.name));
        Self { leases }
    }
}

/// A waiter that was handed a lease tells of the same grant as the one who handed it over: what is
/// known of the time of either is known of it.
fn merge_transfers(steps: &mut Vec<Timed>) {
    let mut given: HashMap<u64, usize> = HashMap::new();
    for (at, timed) in steps.iter().enumerate() {
        if let Step::Transfer { new, .. } = timed.step {
            given.insert(new, at);
        }
    }
    let mut told = Vec::new();
    for (at, timed) in steps.iter().enumerate() {
        let Step::Grant { session, token } = timed.step else {
            continue;
        };
        let Some(&transfer) = given.get(&token) else {
            continue;
        };
        let to_it = matches!(steps[transfer].step, Step::Transfer { to, .. } if to == session);
        let begin = steps[transfer].begin.max(timed.begin);
        let end = steps[transfer].end.min(timed.end);
        if to_it && begin <= end {
            told.push((at, transfer, begin, end));
        }
    }
    for &(_, transfer, begin, end) in &told {
        steps[transfer].begin = begin;
        steps[transfer].end = end;
    }
    let told: HashSet<usize> = told.iter().map(|&(at, ..)| at).collect();
    let mut at = 0;
    steps.retain(|_| {
        at += 1;
        !told.contains(&(at - 1))
    });
}
