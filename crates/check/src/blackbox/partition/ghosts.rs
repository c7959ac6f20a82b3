//! Grants that nobody was told of as the answer to an acquire, but whose tokens were seen by others:
//! the answer was lost. One whose token nobody ever saw explains nothing and can be left out.

use std::collections::HashMap;

use super::super::spec::Step;
use super::{FromNowhere, Ghost, Lease};

/// A token that somebody saw.
#[derive(Clone, Copy)]
struct Seen {
    session: Option<u64>,
    by: Option<usize>,
}

/// Finds who may have been granted the tokens that were seen without an answer.
pub(super) fn look_for(lease: &mut Lease) {
    let mut ghosts = Vec::new();
    let mut given: HashMap<Option<u64>, usize> = HashMap::new();
    let mut seen: Vec<(u64, Seen)> = seen(lease).into_iter().collect();
    seen.sort_unstable_by_key(|&(token, _)| token);
    for (token, seen) in seen {
        let found = candidates(lease, token, seen.session);
        let count = given.entry(seen.session).or_default();
        *count += 1;
        if *count <= found.len() {
            ghosts.extend(distinct(found));
        } else if let Some(seen_by) = seen.by {
            lease.from_nowhere.push(FromNowhere { token, seen_by });
        }
    }
    lease.ghosts = ghosts;
}

/// The tokens that were seen and that no answer grants.
fn seen(lease: &Lease) -> HashMap<u64, Seen> {
    let mut seen: HashMap<u64, Seen> = HashMap::new();
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
        let by = timed.operation;
        let known = seen.entry(token).or_insert(Seen { session, by });
        known.session = known.session.or(session);
    }
    for timed in &lease.steps {
        if let Step::Grant { token, .. } | Step::Transfer { new: token, .. } = timed.step {
            seen.remove(&token);
        }
    }
    seen
}

fn candidates(lease: &Lease, token: u64, session: Option<u64>) -> Vec<Ghost> {
    let fits =
        |candidate: Option<u64>| candidate.is_none() || session.is_none() || candidate == session;
    let acquires = lease.open_ended.iter().filter(|open| fits(open.session));
    let acquired = acquires.map(|open| Ghost {
        token,
        session: session.or(open.session),
        handed: None,
        from: open.from,
    });
    let transfers = lease.may_transfer.iter().flat_map(|(&handed, may)| {
        let may = may.iter().filter(|may| fits(may.to));
        may.map(move |may| (handed, may))
    });
    let transferred = transfers.map(|(handed, may)| Ghost {
        token,
        session: session.or(may.to),
        handed: Some(handed),
        from: may.from,
    });
    acquired.chain(transferred).collect()
}

/// Of ghosts that differ only in time the earliest says it all.
fn distinct(mut ghosts: Vec<Ghost>) -> Vec<Ghost> {
    ghosts.sort_unstable_by_key(|ghost| (ghost.session, ghost.handed, ghost.from));
    ghosts.dedup_by_key(|ghost| (ghost.session, ghost.handed));
    ghosts
}
