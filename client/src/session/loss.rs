//! Why a lease or a session is held no more.

use std::fmt;

use ringfence_core::{EndCause, SessionEnd};
use ringfence_proto::v1;
use ringfence_proto::wire::{end_cause_from_wire, session_end_from_wire};

/// Why a lease is no longer held, or a session is over. It is final: what was once reported lost is
/// never reported held again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The window passed without an acknowledged keep-alive: the cluster may have given the lease
    /// to another client.
    WindowPassed,
    /// The application gave no sign of life within its [heartbeat](crate::Heartbeat)'s limit, so
    /// the session was not renewed and its window passed.
    Stuck,
    /// The session has ended at the cluster.
    SessionEnded {
        /// Why, if that is remembered.
        cause: Option<SessionEnd>,
    },
    /// The grant ended against the session's will, by a revoke for example.
    GrantEnded {
        /// Why, if that is remembered.
        cause: Option<EndCause>,
    },
    /// The cluster says that the secret is not the session's.
    WrongSecret,
    /// The endpoints belong to another cluster now, one that was restored for example.
    ClusterChanged,
    /// The application said so: a guard refused its token.
    Reported,
    /// This client closed the session.
    Closed,
    /// This client left the session to itself.
    Detached,
    /// This client released the lease, or handed it over.
    Released,
}

impl Loss {
    /// A session that the cluster says is over. A cause that this version does not know is none.
    pub(crate) fn of_session(cause: Option<v1::SessionEnd>) -> Self {
        let cause = cause.and_then(|cause| session_end_from_wire(cause).ok());
        Self::SessionEnded { cause }
    }

    /// A grant that the cluster says has ended.
    pub(crate) fn of_grant(cause: Option<v1::EndCause>) -> Self {
        let cause = cause.and_then(|cause| end_cause_from_wire(cause).ok());
        Self::GrantEnded { cause }
    }

    /// Whether this client itself gave it up: a release, a hand-over, a close. Work need not be
    /// stopped for that, it has ended.
    #[must_use]
    pub fn is_own_doing(&self) -> bool {
        match self {
            Self::Closed | Self::Detached | Self::Released => true,
            Self::WindowPassed
            | Self::Stuck
            | Self::SessionEnded { .. }
            | Self::GrantEnded { .. }
            | Self::WrongSecret
            | Self::ClusterChanged
            | Self::Reported => false,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WindowPassed => {
                f.write_str("no keep-alive was acknowledged within the session's window")
            }
            Self::Stuck => {
                f.write_str("the work gave no heartbeat, so its session was not renewed")
            }
            Self::SessionEnded { cause } => match cause {
                Some(cause) => write!(f, "the session {}", session_end(cause)),
                None => f.write_str("the session has ended, or never was"),
            },
            Self::GrantEnded { cause } => match cause {
                Some(cause) => write!(f, "the grant {}", grant_end(cause)),
                None => f.write_str("the grant has ended"),
            },
            Self::WrongSecret => f.write_str("the secret is not the session's"),
            Self::ClusterChanged => f.write_str("the endpoints belong to another cluster now"),
            Self::Reported => f.write_str("a guard refused its token"),
            Self::Closed => f.write_str("this client closed the session"),
            Self::Detached => f.write_str("this client left the session to itself"),
            Self::Released => f.write_str("this client gave the lease up"),
        }
    }
}

impl std::error::Error for Loss {}

fn session_end(end: &SessionEnd) -> String {
    match end {
        SessionEnd::Closed => "was closed".into(),
        SessionEnd::Expired => "has expired".into(),
        SessionEnd::Evicted { operator, reason } => format!("was evicted{}", by(operator, reason)),
        SessionEnd::PodEnded { uid, seen } => format!("ended: its Pod {uid} {seen}"),
    }
}

fn grant_end(end: &EndCause) -> String {
    match end {
        EndCause::Released => "was released".into(),
        EndCause::Expired => "has expired".into(),
        EndCause::Closed => "ended with its session, which was closed".into(),
        EndCause::Revoked { operator, reason } => format!("was revoked{}", by(operator, reason)),
        EndCause::Evicted { operator, reason } => {
            let by = by(operator, reason);
            format!("ended with its session, which was evicted{by}")
        }
        EndCause::Transferred { to } => format!("was handed over to session {to}"),
        EndCause::PodEnded { uid, seen } => {
            format!("ended with its session: its Pod {uid} {seen}")
        }
    }
}

fn by(operator: &str, reason: &str) -> String {
    let mut text = String::new();
    if !operator.is_empty() {
        text.push_str(" by ");
        text.push_str(operator);
    }
    if !reason.is_empty() {
        text.push_str(": ");
        text.push_str(reason);
    }
    text
}
