//! What the client crate says, as the history has it.
//!
//! Where the crate repeats a request by itself, or finds out by its own clock, and does not say
//! so, the answer is written down as unknown: that can hide a fault of the service, and never makes
//! one up.

use ringfence_check::history::{Block, Outcome, SessionCause, WatchCause};
use ringfence_client::proto::{EndCause, Reason, SessionEnd, end_cause, session_end};
use ringfence_client::{AcquireError, Blocked, CallError, OpenError, TransferError};

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
            reason => {
                let name = reason.as_str_name();
                let reason = name.strip_prefix("REASON_").unwrap_or(name).to_owned();
                Outcome::Refused { reason }
            }
        },
        CallError::Unavailable { why } => Outcome::NotDone { error: why.clone() },
        CallError::Unknown { why } => Outcome::Unknown { error: why.clone() },
    }
}

pub(super) fn of_open(error: &OpenError) -> Outcome {
    match error {
        OpenError::Call(call) => of_call(call),
        OpenError::InvalidIdentity(_) | OpenError::TooLate => unknown(error),
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
        AcquireError::NotNow { why, .. } => Outcome::Blocked(match why {
            Blocked::LockDelay => Block::LockDelay,
            Blocked::Revoking => Block::Revoking,
            Blocked::QuietTime => Block::QuietTime,
        }),
        AcquireError::TimedOut => Outcome::TimedOut,
        AcquireError::Call(call) => of_call(call),
        AcquireError::InvalidName(_) | AcquireError::Ended(_) | AcquireError::SessionLost(_) => {
            unknown(error)
        }
    }
}

pub(super) fn of_transfer(error: &TransferError) -> Outcome {
    match error {
        TransferError::NotWaiting { .. } => Outcome::NotWaiting,
        TransferError::Lost(_) => unknown(error),
        TransferError::Call(call) => of_call(call),
    }
}

/// Why a session ended, if that was told.
pub(super) fn of_session_end(end: &SessionEnd) -> Option<SessionCause> {
    match end.kind() {
        session_end::Kind::Unspecified => None,
        session_end::Kind::Closed => Some(SessionCause::Closed),
        session_end::Kind::Expired => Some(SessionCause::Expired),
        session_end::Kind::Evicted => Some(SessionCause::Evicted),
        session_end::Kind::PodEnded => Some(SessionCause::PodEnded),
    }
}

/// Why a grant ended, if that was told.
pub(super) fn of_grant_end(end: &EndCause) -> Option<WatchCause> {
    match end.kind() {
        end_cause::Kind::Unspecified => None,
        end_cause::Kind::Released => Some(WatchCause::Released),
        end_cause::Kind::Expired => Some(WatchCause::Expired),
        end_cause::Kind::Closed => Some(WatchCause::Closed),
        end_cause::Kind::Revoked => Some(WatchCause::Revoked),
        end_cause::Kind::Evicted => Some(WatchCause::Evicted),
        end_cause::Kind::Transferred => Some(WatchCause::Transferred),
        end_cause::Kind::PodEnded => Some(WatchCause::PodEnded),
    }
}
