//! What the model answers, in the words of a history, and when two answers are the same.

use ringfence_core::{Acquired, Cancelled, Opened, Outcome, Rejection};

use crate::history;
use crate::history::Block;

pub(super) fn told_outcome(outcome: &Outcome) -> history::Outcome {
    match outcome {
        Outcome::Done
        | Outcome::Renewed(_)
        | Outcome::NodeId(_)
        | Outcome::AccessChanged { .. }
        | Outcome::Object(_) => history::Outcome::Done,
        Outcome::Opened(Opened {
            session,
            ttl,
            acquired,
            ..
        }) => history::Outcome::Opened {
            session: session.get(),
            ttl_ms: ttl.0,
            acquired: acquired
                .as_ref()
                .map(|acquired| Box::new(told_acquired(acquired))),
        },
        Outcome::Acquired(acquired) => told_acquired(acquired),
        Outcome::Cancelled(Cancelled::Removed) => history::Outcome::Removed,
        Outcome::Cancelled(Cancelled::Settled) => history::Outcome::Settled,
        Outcome::Cancelled(Cancelled::Voided) => history::Outcome::Voided,
        Outcome::Cancelled(Cancelled::Granted { name, token }) => history::Outcome::StillGranted {
            lease: name.as_str().to_owned(),
            token: token.get(),
        },
        Outcome::Released { .. } => history::Outcome::Released,
        Outcome::Transferred { to, token } => history::Outcome::Transferred {
            to: to.get(),
            token: token.get(),
        },
        Outcome::Closed { .. } => history::Outcome::Closed,
        Outcome::Rejected(rejection) => told_rejection(rejection),
    }
}

pub(super) fn told_acquired(acquired: &Acquired) -> history::Outcome {
    match acquired {
        Acquired::Granted(granted) => history::Outcome::Granted {
            token: granted.token.get(),
        },
        // Not an answer yet: its client goes on waiting.
        Acquired::Waiting { .. } => history::Outcome::Queued { waiters: None },
        Acquired::Ended { token, .. } => history::Outcome::Ended { token: token.get() },
        Acquired::TimedOut { .. } => history::Outcome::TimedOut,
        Acquired::Cancelled { .. } => history::Outcome::Cancelled,
        Acquired::Refused(rejection) => told_rejection(rejection),
    }
}

fn told_rejection(rejection: &Rejection) -> history::Outcome {
    match rejection {
        Rejection::SessionExpired { .. } => history::Outcome::SessionExpired,
        Rejection::Held { holder, mine } => history::Outcome::Held {
            session: holder.session.get(),
            token: holder.token.get(),
            mine: *mine,
        },
        Rejection::Queued { waiters } => history::Outcome::Queued {
            waiters: Some(*waiters),
        },
        Rejection::LockDelay { .. } => history::Outcome::Blocked(Block::LockDelay),
        Rejection::Revoking { .. } => history::Outcome::Blocked(Block::Revoking),
        Rejection::QuietTime { .. } => history::Outcome::Blocked(Block::QuietTime),
        Rejection::StaleToken { current, .. } => history::Outcome::StaleToken {
            current: current.map(|current| current.get()),
        },
        Rejection::NotHolder { .. } => history::Outcome::NotHolder,
        Rejection::NotWaiting { .. } => history::Outcome::NotWaiting,
        // The words are the protocol's, and more than one may fit.
        other => history::Outcome::Refused {
            reason: format!("{other:?}"),
        },
    }
}

/// Whether a client that was given the `replayed` answer can have `told` this.
pub(super) fn agree(told: &history::Outcome, replayed: &history::Outcome) -> bool {
    use history::Outcome as O;
    match (told, replayed) {
        (O::Queued { waiters: a }, O::Queued { waiters: b }) => {
            // A place in the queue is no refusal; only a refusal counts the others.
            b.is_some() && a.is_none_or(|a| Some(a) == *b)
        }
        (O::StaleToken { current: Some(a) }, O::StaleToken { current }) => Some(*a) == *current,
        (O::StaleToken { current: None }, O::StaleToken { .. })
        | (O::Refused { .. }, O::Refused { .. }) => true,
        (told, replayed) => told == replayed,
    }
}
