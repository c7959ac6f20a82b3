//! What an applied acquire, and the end of a wait, mean to the caller.

use ringfence_core::{
    Acquired, ClusterTime, Command, Opened, Outcome, Rejection, RequestNumber, SessionId,
};
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{Applied, Node, WaitDone};

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
            let opened = opened_answer(&opened, time, node);
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
        (acquired, _) => Progress::Answered(acquired_answer(&acquired, time, opened)),
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
        WaitDone::Settled(acquired) => acquired_answer(&acquired, time, place.opened),
        WaitDone::SessionGone => Err(session_gone(place.session, node)),
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

/// A session that was opened.
pub(super) fn opened_answer(opened: &Opened, time: ClusterTime, node: &Node) -> v1::OpenResponse {
    match node.read(|state| state.cluster()) {
        Some(cluster) => wire::opened_to_wire(opened, time, &cluster),
        // The answer came through another node, and this one has not even seen the first entry.
        None => v1::OpenResponse {
            session: opened.session.get(),
            ttl_ms: opened.ttl.0,
            cluster_time_ms: time.0,
            cluster_id: bytes::Bytes::new(),
        },
    }
}

/// The end of an acquire that does not wait any more.
fn acquired_answer(
    acquired: &Acquired,
    time: ClusterTime,
    opened: Option<v1::OpenResponse>,
) -> Result<v1::AcquireResponse, Refusal> {
    match wire::acquired_to_wire(acquired) {
        Ok(grant) => Ok(v1::AcquireResponse {
            grant: Some(grant),
            opened,
            cluster_time_ms: time.0,
        }),
        Err(refusal) => Err(with_session(refusal, opened)),
    }
}

/// A refusal of an acquire that opened a session all the same: its client needs the number.
pub(super) fn with_session(refusal: Refusal, opened: Option<v1::OpenResponse>) -> Refusal {
    match opened {
        Some(opened) => refusal
            .with("session", opened.session)
            .with("ttl_ms", opened.ttl_ms),
        None => refusal,
    }
}

/// A session that is gone while one of its requests waited. This node has applied its end.
fn session_gone(session: SessionId, node: &Node) -> Refusal {
    let cause = node.read(|machine| machine.session_end(session));
    Refusal::from_rejection(&Rejection::SessionExpired { cause }).with("session", session)
}
