//! A refusal of the cluster's, as this crate shows it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ringfence_proto::{Refusal as WireRefusal, v1};
use tonic::Status;

/// What the cluster says when it does not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The reason, for programs to match on.
    pub reason: Reason,
    /// What was offered, what was expected, what to do: for people. At most 1,024 bytes if the
    /// server is this version's; never a secret.
    pub message: String,
    /// Details for programs, by name; each [`Reason`] says which ones it comes with.
    pub metadata: BTreeMap<String, String>,
    /// Try again no sooner than after this time, a millisecond to seven days; `None`: no advice.
    pub retry_after: Option<Duration>,
}

/// Why the cluster refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A field is missing, malformed or out of range. Details: `field`, `offered`, `allowed`.
    InvalidArgument,
    /// No leader is known, or it has no quorum. This try was not carried out and will not be.
    /// Details: `leader` if one is known.
    Unavailable,
    /// The request may take effect or may have.
    OutcomeUnknown,
    /// A client holds the lease. Details: `holder`, `identity`, `token`, `mine`.
    Held,
    /// No client holds the lease, but others wait for it. Details: `waiters`.
    Queued,
    /// The last grant ended without its holder's word, and its lock-delay runs.
    LockDelay,
    /// The last grant was revoked, and its holder may not know yet.
    Revoking,
    /// The cluster was restored and grants nothing yet.
    QuietTime,
    /// The token is not that of the present grant. Details: `offered`, `current`.
    StaleToken,
    /// The grant with this token is another session's.
    NotHolder,
    /// The target of a hand-over does not wait for the lease.
    NotWaiting,
    /// The session has ended, or there never was one with this number. Details: `cause`, for 60 s
    /// of cluster time after the end.
    SessionExpired,
    /// The secret is not the session's.
    WrongSecret,
    /// The request number is below the lowest that the session waits for.
    StaleRequest,
    /// The request number was used before for another request.
    RequestMismatch,
    /// The request was cancelled before it came.
    RequestVoided,
    /// A limit is reached. Details: `limit`, `max`.
    Limit,
    /// The request to open a session was under way for more than 60 s. Details: `seen`, `now`.
    OpenTooOld,
    /// The session of this request to open one has ended, or its secret is another one.
    OpenIdUsed,
    /// The settings have changed since they were read. Details: `set_at`.
    StaleSettings,
    /// The position belongs to another cluster.
    ClusterChanged,
    /// The history asked for is no longer kept.
    Compacted,
    /// The wait is over and brought no grant.
    WaitTimeout,
    /// The request was taken back.
    Cancelled,
    /// The grant that answered this request has ended since. Details: `token`, `cause`.
    Ended,
    /// A change of the members cannot be made now; the message says why.
    Membership,
    /// There is no such name, token, node or record.
    NotFound,
    /// A fault of the node that was asked.
    Fault,
    /// The cluster never had this position. Details: `offered`, `newest`.
    PositionUnknown,
    /// The credential that was shown proves nothing. Details: `why`.
    Unauthenticated,
    /// No rule allows it. Details: `principal`, `verb`, `names`, `rule`.
    PermissionDenied,
    /// Rights have changed since they were read. Details: `set_at`.
    StaleAccess,
}

impl Reason {
    /// The reason as the protocol and the command line write it, `STALE_TOKEN` for example.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::Unavailable => "UNAVAILABLE",
            Self::OutcomeUnknown => "OUTCOME_UNKNOWN",
            Self::Held => "HELD",
            Self::Queued => "QUEUED",
            Self::LockDelay => "LOCK_DELAY",
            Self::Revoking => "REVOKING",
            Self::QuietTime => "QUIET_TIME",
            Self::StaleToken => "STALE_TOKEN",
            Self::NotHolder => "NOT_HOLDER",
            Self::NotWaiting => "NOT_WAITING",
            Self::SessionExpired => "SESSION_EXPIRED",
            Self::WrongSecret => "WRONG_SECRET",
            Self::StaleRequest => "STALE_REQUEST",
            Self::RequestMismatch => "REQUEST_MISMATCH",
            Self::RequestVoided => "REQUEST_VOIDED",
            Self::Limit => "LIMIT",
            Self::OpenTooOld => "OPEN_TOO_OLD",
            Self::OpenIdUsed => "OPEN_ID_USED",
            Self::StaleSettings => "STALE_SETTINGS",
            Self::ClusterChanged => "CLUSTER_CHANGED",
            Self::Compacted => "COMPACTED",
            Self::WaitTimeout => "WAIT_TIMEOUT",
            Self::Cancelled => "CANCELLED",
            Self::Ended => "ENDED",
            Self::Membership => "MEMBERSHIP",
            Self::NotFound => "NOT_FOUND",
            Self::Fault => "FAULT",
            Self::PositionUnknown => "POSITION_UNKNOWN",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::StaleAccess => "STALE_ACCESS",
        }
    }

    /// A reason of the protocol; `None` if it says none.
    pub(crate) const fn from_wire(reason: v1::Reason) -> Option<Self> {
        Some(match reason {
            v1::Reason::Unspecified => return None,
            v1::Reason::InvalidArgument => Self::InvalidArgument,
            v1::Reason::Unavailable => Self::Unavailable,
            v1::Reason::OutcomeUnknown => Self::OutcomeUnknown,
            v1::Reason::Held => Self::Held,
            v1::Reason::Queued => Self::Queued,
            v1::Reason::LockDelay => Self::LockDelay,
            v1::Reason::Revoking => Self::Revoking,
            v1::Reason::QuietTime => Self::QuietTime,
            v1::Reason::StaleToken => Self::StaleToken,
            v1::Reason::NotHolder => Self::NotHolder,
            v1::Reason::NotWaiting => Self::NotWaiting,
            v1::Reason::SessionExpired => Self::SessionExpired,
            v1::Reason::WrongSecret => Self::WrongSecret,
            v1::Reason::StaleRequest => Self::StaleRequest,
            v1::Reason::RequestMismatch => Self::RequestMismatch,
            v1::Reason::RequestVoided => Self::RequestVoided,
            v1::Reason::Limit => Self::Limit,
            v1::Reason::OpenTooOld => Self::OpenTooOld,
            v1::Reason::OpenIdUsed => Self::OpenIdUsed,
            v1::Reason::StaleSettings => Self::StaleSettings,
            v1::Reason::ClusterChanged => Self::ClusterChanged,
            v1::Reason::Compacted => Self::Compacted,
            v1::Reason::WaitTimeout => Self::WaitTimeout,
            v1::Reason::Cancelled => Self::Cancelled,
            v1::Reason::Ended => Self::Ended,
            v1::Reason::Membership => Self::Membership,
            v1::Reason::NotFound => Self::NotFound,
            v1::Reason::Fault => Self::Fault,
            v1::Reason::PositionUnknown => Self::PositionUnknown,
            v1::Reason::Unauthenticated => Self::Unauthenticated,
            v1::Reason::PermissionDenied => Self::PermissionDenied,
            v1::Reason::StaleAccess => Self::StaleAccess,
        })
    }
}

impl Refusal {
    /// The refusal in a message of a stream. `None` if its reason is none that this version knows:
    /// then nothing is known of the request's fate.
    pub(crate) fn from_wire(refusal: v1::Refusal) -> Option<Self> {
        WireRefusal::from_wire(refusal).and_then(Self::of)
    }

    /// The refusal that a status carries; `None` as [`from_wire`](Self::from_wire).
    pub(crate) fn from_status(status: &Status) -> Option<Self> {
        WireRefusal::from_status(status).and_then(Self::of)
    }

    pub(crate) fn of(refusal: WireRefusal) -> Option<Self> {
        Some(Self {
            reason: Reason::from_wire(refusal.reason)?,
            message: refusal.message,
            metadata: refusal.metadata,
            retry_after: refusal.retry_after,
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use ringfence_proto::refusal::reason_name;

    use super::*;

    #[test]
    fn every_reason_of_the_protocol_keeps_its_name() {
        let known = (1..).map_while(|number| v1::Reason::try_from(number).ok());
        let mut count = 0;
        for wire in known {
            let reason = Reason::from_wire(wire).map(Reason::as_str);
            assert_eq!(reason, Some(reason_name(wire)));
            count += 1;
        }
        assert!(count >= 29, "{count}");
        assert_eq!(Reason::from_wire(v1::Reason::Unspecified), None);
    }

    #[test]
    fn a_refusal_keeps_all_it_says() {
        let wire = WireRefusal::new(v1::Reason::Held, "somebody holds it")
            .with("token", 7)
            .retry_after(Duration::from_millis(30));
        let status = Status::from(wire.clone());

        let told = Refusal::from_status(&status);

        assert_eq!(told, Refusal::from_wire(wire.into()));
        let told = told.map(|told| (told.to_string(), told.metadata, told.retry_after));
        let (text, details, after) = told.unwrap_or_default();
        assert_eq!(text, "HELD: somebody holds it");
        assert_eq!(details.get("token").map(String::as_str), Some("7"));
        assert_eq!(after, Some(Duration::from_millis(30)));
    }
}
