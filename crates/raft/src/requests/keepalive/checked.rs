//! The check of a request before its batch is logged.

use std::collections::BTreeSet;

use ringfence_core::{Secret, SessionId};
use ringfence_planted::{Bug, planted};

use super::judging::{Claim, Judge};
use super::{Acknowledgement, Asked, KeepAlive};
use crate::store::state::State;

/// How many secrets or losses are checked before those that wait for the state get it.
pub(super) const CHECKED_AT_ONCE: usize = 1_000;

/// A request whose caller and secrets have been checked.
pub(super) struct Checked {
    pub(super) asked: Asked,
    pub(super) alive: Vec<SessionId>,
    /// Those of `alive` that become the caller's.
    pub(super) unowned: Vec<(SessionId, Secret)>,
    pub(super) doubtful: Vec<(SessionId, Secret)>,
    /// The acknowledgements of `alive` that go into the log: each is of a loss that this state has.
    pub(super) noticed: Vec<Acknowledgement>,
    /// The others of `alive`, sorted: invented, or acknowledged before, or of a loss that stands in the
    /// log and is still to be applied here. None of them is logged.
    pub(super) left_out: Vec<Acknowledgement>,
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
    let (noticed, left_out) = losses(state, &asked.request.acknowledged, &alive);
    Checked {
        asked,
        alive,
        unowned,
        doubtful,
        noticed,
        left_out,
    }
}

/// The acknowledgements of these sessions, sorted and each once: of losses that the state has, and the
/// others. A loss counts as noticed only on the word of a client that knows the session's secret.
fn losses(
    state: &State,
    acknowledged: &[Acknowledgement],
    alive: &[SessionId],
) -> (Vec<Acknowledgement>, Vec<Acknowledgement>) {
    let (mut noticed, mut left_out) = (Vec::new(), Vec::new());
    if acknowledged.is_empty() {
        return (noticed, left_out);
    }
    let alive: BTreeSet<SessionId> = alive.iter().copied().collect();
    let of_alive = acknowledged.iter().copied();
    let mut of_alive: Vec<Acknowledgement> =
        of_alive.filter(|(id, _)| alive.contains(id)).collect();
    of_alive.sort_unstable();
    of_alive.dedup();
    if planted(Bug::InventedLossesLogged) {
        return (of_alive, left_out);
    }
    let known = have_losses(state, &of_alive);
    for (one, known) in of_alive.into_iter().zip(known) {
        match known {
            true => noticed.push(one),
            false => left_out.push(one),
        }
    }
    (noticed, left_out)
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

/// The acknowledgements of a request, sorted, of which this node's state has the loss, of sessions that
/// the request names. The state may lag, so others may be of a loss all the same.
pub(crate) fn losses_known_here(state: &State, request: &KeepAlive) -> Vec<Acknowledgement> {
    if request.acknowledged.is_empty() {
        return Vec::new();
    }
    let named: BTreeSet<SessionId> = request.sessions.iter().map(|(id, _)| *id).collect();
    let of_named = request.acknowledged.iter().copied();
    let mut of_named: Vec<Acknowledgement> =
        of_named.filter(|(id, _)| named.contains(id)).collect();
    of_named.sort_unstable();
    of_named.dedup();
    let known = have_losses(state, &of_named);
    let known = of_named.into_iter().zip(known).filter(|(_, known)| *known);
    known.map(|(one, _)| one).collect()
}

/// Of which of these, sorted, the state has the loss. What a session has lost may be thousands of grants,
/// and so may be what it acknowledges: the losses of each are gone through once.
fn have_losses(state: &State, sorted: &[Acknowledgement]) -> Vec<bool> {
    let mut known = vec![false; sorted.len()];
    for (part, known) in sorted
        .chunks(CHECKED_AT_ONCE)
        .zip(known.chunks_mut(CHECKED_AT_ONCE))
    {
        let machine = state.machine();
        let mut begin = 0;
        for of_session in part.chunk_by(|one, next| one.0 == next.0) {
            let (session, _) = of_session[0];
            for lost in machine.lost(session) {
                if let Ok(at) = of_session.binary_search(&(session, lost.token)) {
                    known[begin + at] = true;
                }
            }
            begin += of_session.len();
        }
    }
    known
}
