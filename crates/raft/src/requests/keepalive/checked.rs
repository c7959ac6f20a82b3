//! The check of a request before its batch is logged.

use ringfence_core::{Secret, SessionId};

use super::judging::{Claim, Judge};
use super::{Asked, KeepAlive};
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

/// Where in a request the sessions stand that this node's state would refuse its caller. The state may
/// lag, so none of them is over by that.
pub(crate) fn unknown_here(state: &State, request: &KeepAlive) -> Vec<usize> {
    let mut unknown = Vec::new();
    for (part, sessions) in request.sessions.chunks(CHECKED_AT_ONCE).enumerate() {
        let machine = state.machine();
        let judge = Judge::new(&machine, request.caller.as_ref());
        for (at, (session, secret)) in sessions.iter().enumerate() {
            if judge.judge(*session, secret).is_err() {
                unknown.push(part * CHECKED_AT_ONCE + at);
            }
        }
    }
    unknown
}
