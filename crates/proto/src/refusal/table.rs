//! The error table: every reason with its gRPC code and what it says of the outcome.

use ringfence_core::{EndCause, SessionEnd};
use tonic::Code;

use super::Refusal;
use crate::v1::Reason;

/// The gRPC code of a reason.
#[must_use]
pub fn code(reason: Reason) -> Code {
    match reason {
        Reason::Unspecified => Code::Unknown,
        Reason::InvalidArgument | Reason::RequestMismatch => Code::InvalidArgument,
        Reason::Unavailable => Code::Unavailable,
        Reason::OutcomeUnknown | Reason::WaitTimeout => Code::DeadlineExceeded,
        Reason::Held
        | Reason::Queued
        | Reason::LockDelay
        | Reason::Revoking
        | Reason::QuietTime
        | Reason::StaleToken
        | Reason::NotWaiting
        | Reason::StaleRequest
        | Reason::OpenTooOld
        | Reason::OpenIdUsed
        | Reason::Membership => Code::FailedPrecondition,
        Reason::NotHolder | Reason::WrongSecret | Reason::PermissionDenied => {
            Code::PermissionDenied
        }
        Reason::Unauthenticated => Code::Unauthenticated,
        Reason::SessionExpired | Reason::NotFound => Code::NotFound,
        Reason::RequestVoided
        | Reason::StaleSettings
        | Reason::StaleAccess
        | Reason::ClusterChanged
        | Reason::Cancelled
        | Reason::Ended => Code::Aborted,
        Reason::Limit => Code::ResourceExhausted,
        Reason::Compacted | Reason::PositionUnknown => Code::OutOfRange,
        Reason::Fault => Code::Internal,
    }
}

/// The HTTP status of a reason, for callers that speak JSON.
#[must_use]
pub fn http_status(reason: Reason) -> u16 {
    match reason {
        Reason::InvalidArgument => 400,
        Reason::Unauthenticated => 401,
        Reason::NotHolder | Reason::WrongSecret | Reason::PermissionDenied => 403,
        Reason::SessionExpired | Reason::NotFound => 404,
        Reason::Held
        | Reason::Queued
        | Reason::LockDelay
        | Reason::Revoking
        | Reason::QuietTime
        | Reason::StaleToken
        | Reason::NotWaiting
        | Reason::StaleRequest
        | Reason::OpenTooOld
        | Reason::OpenIdUsed
        | Reason::Membership
        | Reason::RequestVoided
        | Reason::StaleSettings
        | Reason::StaleAccess
        | Reason::ClusterChanged
        | Reason::Cancelled
        | Reason::Ended
        // Not 504: that one says that the outcome is unknown, and a wait that is over is certain.
        | Reason::WaitTimeout => 409,
        Reason::Compacted | Reason::PositionUnknown => 410,
        Reason::RequestMismatch => 422,
        Reason::Limit => 429,
        Reason::Unspecified | Reason::Fault => 500,
        Reason::Unavailable => 503,
        Reason::OutcomeUnknown => 504,
    }
}

/// The name of a reason as `ErrorInfo` carries it, `HELD` for example.
#[must_use]
pub fn reason_name(reason: Reason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// The reason with this name; `None` if there is none.
#[must_use]
pub fn reason_of_name(name: &str) -> Option<Reason> {
    let reason = Reason::from_str_name(&format!("{PREFIX}{name}"))?;
    (reason != Reason::Unspecified).then_some(reason)
}

const PREFIX: &str = "REASON_";

/// Whether a reason excludes that the request takes effect from now on, beyond what the refusal
/// itself tells. An `ENDED` request was granted once, and the refusal says so.
pub(super) fn is_certain(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::Unspecified | Reason::OutcomeUnknown | Reason::Fault
    )
}

/// Why a grant ended, in words.
pub(super) fn end_words(cause: &EndCause) -> &'static str {
    match cause {
        EndCause::Released => "it was released",
        EndCause::Expired => "its session expired",
        EndCause::Closed => "its session was closed",
        EndCause::Revoked { .. } => "an operator revoked it",
        EndCause::Evicted { .. } => "an operator evicted its session",
        EndCause::Transferred { .. } => "it was handed over",
        EndCause::PodEnded { .. } => "the Pod that its session was bound to is over",
    }
}

/// `cause`, and what belongs to it.
pub(super) fn with_end_cause(refusal: Refusal, cause: &EndCause) -> Refusal {
    match cause {
        EndCause::Released => refusal.with("cause", "RELEASED"),
        EndCause::Expired => refusal.with("cause", "EXPIRED"),
        EndCause::Closed => refusal.with("cause", "CLOSED"),
        EndCause::Revoked { operator, reason } => refusal
            .with("cause", "REVOKED")
            .with("operator", operator)
            .with("reason", reason),
        EndCause::Evicted { operator, reason } => refusal
            .with("cause", "EVICTED")
            .with("operator", operator)
            .with("reason", reason),
        EndCause::Transferred { to } => refusal.with("cause", "TRANSFERRED").with("to_session", to),
        EndCause::PodEnded { uid, seen } => refusal
            .with("cause", "POD_ENDED")
            .with("pod_uid", uid)
            .with("pod_seen", seen),
    }
}

/// `cause`, and what belongs to it.
pub(super) fn with_session_end(refusal: Refusal, cause: &SessionEnd) -> Refusal {
    match cause {
        SessionEnd::Closed => refusal.with("cause", "CLOSED"),
        SessionEnd::Expired => refusal.with("cause", "EXPIRED"),
        SessionEnd::Evicted { operator, reason } => refusal
            .with("cause", "EVICTED")
            .with("operator", operator)
            .with("reason", reason),
        SessionEnd::PodEnded { uid, seen } => refusal
            .with("cause", "POD_ENDED")
            .with("pod_uid", uid)
            .with("pod_seen", seen),
    }
}
