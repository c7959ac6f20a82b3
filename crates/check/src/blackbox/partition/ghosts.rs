//! Grants that no client received as the answer to an acquire, but whose tokens were seen by
//! others: the answer was lost. One whose token no client ever saw explains nothing and can be left
//! out.
//!
//! Nothing here is done once per token and acquire: what may have been granted is gathered by
//! session, and each token only looks up who it can belong to.

use std::collections::{BTreeMap, HashMap};

use super::super::spec::Step;
use super::{FromNowhere, Ghost, Lease, OpenEnded, Unanswered};

/// A token that a client saw.
#[derive(Clone, Copy)]
struct Seen {
    session: Option<u64>,
    by: Option<usize>,
    held_until: u64,
    newest_until: u64,
}

/// Finds the tokens that were seen without an answer, and those that no client can have been
/// granted.
///
/// As many tokens of a session can be explained as it has requests without an answer.
pub(super) fn look_for(lease: &mut Lease) {
    lease.unanswered = unanswered(&lease.open_ended);
    let asked = Asked::of(lease);
    let mut ghosts = Vec::new();
    let mut given: HashMap<Option<u64>, usize> = HashMap::new();
    let mut seen: Vec<(u64, Seen)> = seen(lease).into_iter().collect();
    seen.sort_unstable_by_key(|&(token, _)| token);
    for (token, seen) in seen {
        let count = given.entry(seen.session).or_default();
        *count += 1;
        if *count <= asked.by(seen.session) {
            ghosts.push(Ghost {
                token,
                session: seen.session,
                held_until: seen.held_until,
                newest_until: seen.newest_until,
            });
        } else if let Some(seen_by) = seen.by {
            lease.from_nowhere.push(FromNowhere { token, seen_by });
        }
    }
    lease.ghosts = ghosts;
}

/// The tokens that were seen and that no answer grants.
fn seen(lease: &Lease) -> HashMap<u64, Seen> {
    let mut seen: HashMap<u64, Seen> = HashMap::new();
    let first_revokes = first_revokes(lease);
    for timed in &lease.steps {
        let (session, token) = match timed.step {
            Step::Release { session, token } | Step::Transfer { session, token, .. } => {
                (Some(session), token)
            }
            Step::Held { session, token } => (session, token),
            Step::Revoke { token } | Step::HeldByOther { token, .. } => (None, token),
            Step::Superseded { newest, .. } => (None, newest),
            _ => continue,
        };
        let known = seen.entry(token).or_insert(Seen {
            session,
            by: timed.operation,
            held_until: 0,
            newest_until: 0,
        });
        known.session = known.session.or(session);
        let (last, until) = match timed.step {
            Step::Superseded { .. } => (&mut known.newest_until, timed.begin),
            // It may repeat an earlier try, which ended the grant.
            Step::Revoke { token } => (&mut known.held_until, first_revokes[&token]),
            _ => (&mut known.held_until, timed.begin),
        };
        *last = until.max(*last);
    }
    for timed in &lease.steps {
        if let Step::Grant { token, .. } | Step::Transfer { new: token, .. } = timed.step {
            seen.remove(&token);
        }
    }
    seen
}

/// When the first try to revoke each token began, whether it was answered or not.
fn first_revokes(lease: &Lease) -> HashMap<u64, u64> {
    let mut first = lease.token_may_be_revoked.clone();
    for timed in &lease.steps {
        if let Step::Revoke { token } = timed.step {
            let begin = first.entry(token).or_insert(timed.begin);
            *begin = timed.begin.min(*begin);
        }
    }
    first
}

/// How many requests without an answer there are by which a session may have been granted the
/// lease.
struct Asked {
    by_session: HashMap<u64, usize>,
    /// Those that may have been anybody's.
    by_anybody: usize,
    all: usize,
}

impl Asked {
    fn of(lease: &Lease) -> Self {
        let mut asked = Self {
            by_session: HashMap::new(),
            by_anybody: 0,
            all: 0,
        };
        let acquirers = lease.open_ended.iter().map(|open| open.session);
        let receivers = lease.may_transfer.values().flatten().map(|may| may.to);
        for session in acquirers.chain(receivers) {
            asked.all += 1;
            match session {
                Some(session) => *asked.by_session.entry(session).or_default() += 1,
                None => asked.by_anybody += 1,
            }
        }
        asked
    }

    fn by(&self, session: Option<u64>) -> usize {
        match session {
            Some(session) => {
                self.by_anybody + self.by_session.get(&session).copied().unwrap_or_default()
            }
            None => self.all,
        }
    }
}

/// Since when each session may have been granted the lease by an acquire without an answer: of
/// several the earliest says it all.
fn unanswered(open_ended: &[OpenEnded]) -> Unanswered {
    let mut unanswered = Unanswered::default();
    let mut by_session: BTreeMap<u64, u64> = BTreeMap::new();
    for open in open_ended {
        let earliest = match open.session {
            Some(session) => by_session.entry(session).or_insert(open.from),
            None => unanswered.by_anybody.get_or_insert(open.from),
        };
        *earliest = open.from.min(*earliest);
    }
    unanswered.in_order = by_session
        .iter()
        .map(|(&session, &from)| (from, session))
        .collect();
    unanswered.in_order.sort_unstable();
    unanswered.by_session = by_session.into_iter().collect();
    unanswered
}
