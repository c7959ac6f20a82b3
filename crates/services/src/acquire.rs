//! What an applied acquire, and the end of a wait, mean to the caller.

use ringfence_core::{Acquired, Command, Opened, Outcome, RequestNumber, SessionId};
use ringfence_proto::{Refusal, v1};
use ringfence_raft::{Applied, Node, WaitDone};

use super::answers;
use crate::status::unexpected;

/// What an applied acquire came to.
pub(super) enum Progress {
    /// It is answered.
    Answered(Result<v1::AcquireResponse, Refusal>),
    /// It stands in the queue.
    Waiting(Place),
}

/// A place in a queue.
pub(super) struct Place {
    /// Whose it is.
    pub(super) session: SessionId,
    /// The request that waits.
    pub(super) number: RequestNumber,
    /// The entry that put it there.
    pub(super) index: u64,
    /// The session that the same entry opened.
    pub(super) opened: Option<v1::OpenResponse>,
}

/// The request that waits if this command has to; unknown for a session not yet opened.
pub(super) fn awaited(command: &Command) -> Option<(SessionId, RequestNumber)> {
    match command.bare() {
        Command::Request(request) => Some((request.session, request.number)),
        _ => None,
    }
}

/// What the applied entry means to its caller.
pub(super) fn progress(
    applied: Applied,
    awaited: Option<(SessionId, RequestNumber)>,
    node: &Node,
) -> Progress {
    let Applied {
        outcome,
        index,
        time,
    } = applied;
    let (acquired, opened, awaited) = match outcome {
        Outcome::Acquired(acquired) => (acquired, None, awaited),
        Outcome::Opened(Opened {
            acquired: Some(acquired),
            session,
            ttl,
            repeated,
        }) => {
            let opened = Opened {
                session,
                ttl,
                repeated,
                acquired: None,
            };
            let opened = answers::opened(&opened, time, node);
            (
                acquired,
                Some(opened),
                Some((session, RequestNumber::FIRST)),
            )
        }
        other => return Progress::Answered(Err(unexpected(&other))),
    };
    match (acquired, awaited) {
        (Acquired::Waiting { .. }, Some((session, number))) => Progress::Waiting(Place {
            session,
            number,
            index,
            opened,
        }),
        (acquired, _) => Progress::Answered(answers::acquired(&acquired, time, opened)),
    }
}

/// What the end of a wait means to its caller.
pub(super) fn settled(
    done: WaitDone,
    place: Place,
    node: &Node,
) -> Result<v1::AcquireResponse, Refusal> {
    let time = node.read(|state| state.time());
    match done {
        WaitDone::Settled(acquired) => answers::acquired(&acquired, time, place.opened),
        WaitDone::SessionGone => Err(answers::session_gone(place.session, node)),
    }
}

/// How a wait that was registered late has ended before, if it has.
pub(super) fn over_already(
    session: SessionId,
    number: RequestNumber,
    node: &Node,
) -> Option<WaitDone> {
    node.read(|machine| match machine.standing(session, number) {
        Some(Acquired::Waiting { .. }) => None,
        Some(acquired) => Some(WaitDone::Settled(acquired)),
        None if machine.session(session).is_some() => None,
        None => Some(WaitDone::SessionGone),
    })
}
