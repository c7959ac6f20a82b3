//! What the client crate says, as the history has it.
//!
//! Where the crate repeats a request automatically, or finds out by its own clock, and does not say
//! so, the answer is written down as unknown: that can hide a fault of the service, and never makes
//! one up.

use ringfence_check::history::{Block, Outcome, SessionCause, WatchCause};
use ringfence_client::{
    AcquireError, Blocked, CallError, EndCause, OpenError, Reason, SessionEnd, TransferError,
};

fn unknown(error: &impl ToString) -> Outcome {
    Outcome::Unknown {
        error: error.to_string(),
    }
}

/// How a call ended that brought no answer of its kind.
pub(super) fn of_call(error: &CallError) -> Outcome {
    match error {
        CallError::Refused(refusal) => match refusal.reason {
            // The number was spent, or the session has ended, after an earlier try that may have
            // had its effect.
            Reason::StaleRequest | Reason::SessionExpired | Reason::WrongSecret => unknown(error),
            reason => Outcome::Refused {
                reason: reason.to_string(),
            },
        },
        CallError::Unavailable { why } => Outcome::NotDone { error: why.clone() },
        CallError::Unknown { why } => Outcome::Unknown { error: why.clone() },
        // A kind that is newer than this.
        _ => unknown(error),
    }
}

pub(super) fn of_open(error: &OpenError) -> Outcome {
    match error {
        OpenError::Call(call) => of_call(call),
        _ => unknown(error),
    }
}

pub(super) fn of_acquire(error: &AcquireError) -> Outcome {
    match error {
        AcquireError::Held(holder) => match (holder.session, holder.token) {
            (Some(session), Some(token)) => Outcome::Held {
                session: session.get(),
                token: token.get(),
                mine: holder.mine,
            },
            _ => unknown(error),
        },
        AcquireError::Queued { waiters } => Outcome::Queued {
            waiters: u32::try_from(*waiters).ok(),
        },
        AcquireError::NotNow { why, .. } => match why {
            Blocked::LockDelay => Outcome::Blocked(Block::LockDelay),
            Blocked::Revoking => Outcome::Blocked(Block::Revoking),
            Blocked::QuietTime => Outcome::Blocked(Block::QuietTime),
            _ => unknown(error),
        },
        AcquireError::TimedOut => Outcome::TimedOut,
        AcquireError::Call(call) => of_call(call),
        _ => unknown(error),
    }
}

pub(super) fn of_transfer(error: &TransferError) -> Outcome {
    match error {
        TransferError::NotWaiting { .. } => Outcome::NotWaiting,
        TransferError::Lost(_) => unknown(error),
        TransferError::Call(call) => of_call(call),
        _ => unknown(error),
    }
}

/// Why a session ended, if that was reported.
pub(super) fn of_session_end(end: &SessionEnd) -> Option<SessionCause> {
    Some(match end {
        SessionEnd::Closed => SessionCause::Closed,
        SessionEnd::Expired => SessionCause::Expired,
        SessionEnd::Evicted { .. } => SessionCause::Evicted,
        SessionEnd::PodEnded { .. } => SessionCause::PodEnded,
    })
}

/// Why a grant ended.
pub(super) fn of_grant_end(end: &EndCause) -> WatchCause {
    match end {
        EndCause::Released => WatchCause::Released,
        EndCause::Expired => WatchCause::Expired,
        EndCause::Closed => WatchCause::Closed,
        EndCause::Revoked { .. } => WatchCause::Revoked,
        EndCause::Evicted { .. } => WatchCause::Evicted,
        EndCause::Transferred { .. } => WatchCause::Transferred,
        EndCause::PodEnded { .. } => WatchCause::PodEnded,
    }
}
