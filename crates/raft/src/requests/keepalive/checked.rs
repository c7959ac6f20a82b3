//! The check of a request before its batch is logged.

use ringfence_core::{Secret, SessionId};

use super::Asked;
use super::judging::{Claim, Judge};
use crate::store::state::State;

/// How many secrets are checked before those that wait for the state get it.
pub(super) const CHECKED_AT_ONCE: usize = 1_000;

/// A request whose caller and secrets have been checked.
pub(super) struct Checked {
    pub(super) asked: Asked,
    pub(super) alive: Vec<SessionId>,
    /// Those of `alive` that become the caller's.
    pub(super) unowned: Vec<(SessionId, Secret)>,
    pub(super) doubtful: Vec<(SessionId, Secret)>,
}

pub(super) fn check(state: &State, asked: Asked) -> Checked {
    let (mut alive, mut unowned, mut doubtful) = (Vec::new(), Vec::new(), Vec::new());
    for part in asked.request.sessions.chunks(CHECKED_AT_ONCE) {
        let machine = state.machine();
        let judge = Judge::new(&machine, asked.request.caller.as_ref());
        for (session, secret) in part {
            match judge.judge(*session, secret) {
                Ok(claim) => {
                    alive.push(*session);
                    if claim == Claim::Unowned {
                        unowned.push((*session, *secret));
                    }
                }
                Err(_) => doubtful.push((*session, *secret)),
            }
        }
    }
    Checked {
        asked,
        alive,
        unowned,
        doubtful,
    }
}
