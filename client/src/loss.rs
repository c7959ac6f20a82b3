//! Why a lease or a session is held no more.

use std::fmt;

use ringfence_proto::v1;

/// Why a lease is no longer held, or a session is over. It is final: what was once reported lost is
/// never reported held again.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// The window passed without an acknowledged keep-alive: the cluster may have given the lease
    /// to somebody else.
    WindowPassed,
    /// The application gave no sign of life within its [heartbeat](crate::Heartbeat)'s limit, so
    /// the session was not renewed and its window passed.
    Stuck,
    /// The session has ended at the cluster.
    SessionEnded {
        /// Why, if that is remembered.
        cause: Option<v1::SessionEnd>,
    },
    /// The grant ended against the session's will, by a revoke for example.
    GrantEnded {
        /// Why, if that is remembered.
        cause: Option<v1::EndCause>,
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
    Left,
    /// This client released the lease, or handed it over.
    Released,
}

impl Loss {
    /// Whether this client itself gave it up: a release, a hand-over, a close. Work need not be
    /// stopped for that, it has ended.
    #[must_use]
    pub fn is_own_doing(&self) -> bool {
        match self {
            Self::Closed | Self::Left | Self::Released => true,
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
            Self::Left => f.write_str("this client left the session to itself"),
            Self::Released => f.write_str("this client gave the lease up"),
        }
    }
}

impl std::error::Error for Loss {}

fn session_end(end: &v1::SessionEnd) -> String {
    use v1::session_end::Kind;
    match end.kind() {
        Kind::Unspecified => "has ended".into(),
        Kind::Closed => "was closed".into(),
        Kind::Expired => "has expired".into(),
        Kind::Evicted => format!("was evicted{}", by(&end.operator, &end.reason)),
        Kind::PodEnded => format!("ended: {}", pod(&end.pod_uid, end.pod_seen())),
    }
}

fn grant_end(end: &v1::EndCause) -> String {
    use v1::end_cause::Kind;
    match end.kind() {
        Kind::Unspecified => "has ended".into(),
        Kind::Released => "was released".into(),
        Kind::Expired => "has expired".into(),
        Kind::Closed => "ended with its session, which was closed".into(),
        Kind::Revoked => format!("was revoked{}", by(&end.operator, &end.reason)),
        Kind::Evicted => {
            format!(
                "ended with its session, which was evicted{}",
                by(&end.operator, &end.reason)
            )
        }
        Kind::Transferred => format!("was handed over to session {}", end.to_session),
        Kind::PodEnded => {
            let pod = pod(&end.pod_uid, end.pod_seen());
            format!("ended with its session: {pod}")
        }
    }
}

fn pod(uid: &str, seen: v1::PodSeen) -> String {
    let seen = match seen {
        v1::PodSeen::Unspecified => "is over",
        v1::PodSeen::Gone => "is gone",
        v1::PodSeen::Succeeded => "has succeeded",
        v1::PodSeen::Failed => "has failed",
        v1::PodSeen::NodeOutOfService => "was on a node out of service",
        v1::PodSeen::Restarted => "has started its container again",
    };
    format!("its Pod {uid} {seen}")
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
