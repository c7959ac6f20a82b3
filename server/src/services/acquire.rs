//! Acquire: one log entry, and for a caller that waits the end of its wait.
//!
//! The end of a wait is only ever told once the caller's own entry is applied: an answer that came
//! from this node's state alone would make the client believe in a keep-alive that nobody logged.

use ringfence_core::{Acquired, Command, Opened, Outcome, RequestNumber, SessionId};
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{Applied, Node, WaitDone};

use super::{Context, answers};
use crate::status::{not_proposed, not_read, unexpected};

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
    match command {
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

impl Context {
    /// Acquires, and waits if the caller does.
    pub(super) async fn acquire(
        &self,
        request: v1::AcquireRequest,
    ) -> Result<v1::AcquireResponse, Refusal> {
        let command = wire::acquire_from_wire(request)?;
        let awaited = awaited(&command);
        // Registered before the entry exists, so that its end cannot be missed.
        let waiter = awaited.map(|(session, number)| self.node.waiter(session, number));
        let applied = self.node.propose(command).await.map_err(not_proposed)?;

        let place = match progress(applied, awaited, &self.node) {
            Progress::Answered(answer) => return answer,
            Progress::Waiting(place) => place,
        };
        let waiter = match waiter {
            Some(waiter) => waiter,
            None => {
                self.catch_up(place.index).await?;
                let waiter = self.node.waiter(place.session, place.number);
                if let Some(done) = over_already(place.session, place.number, &self.node) {
                    return settled(done, place, &self.node);
                }
                waiter
            }
        };
        tokio::select! {
            done = waiter => settled(done, place, &self.node),
            () = self.stopped() => Err(going_away()),
        }
    }

    /// Whether this node has applied the entry at `index`; behind another node's answer it may lag
    /// a little.
    pub(super) fn has_applied(&self, index: u64) -> bool {
        self.node.read(|state| state.index()) >= index
    }

    /// Waits until it has.
    pub(super) async fn catch_up(&self, index: u64) -> Result<(), Refusal> {
        if self.has_applied(index) {
            return Ok(());
        }
        // The request stands in the queue, so whatever happens here is no "not done".
        self.node
            .read_barrier()
            .await
            .map_err(|error| Refusal::outcome_unknown(not_read(error).message))
    }
}

/// A wait that this node cannot follow any longer.
pub(super) fn going_away() -> Refusal {
    Refusal::outcome_unknown("this node is stopping while the request waits")
}
