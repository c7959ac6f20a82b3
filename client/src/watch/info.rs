//! Leases and grants as the cluster tells its readers and watchers.

use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{EndCause, FencingToken, LeaseName, SessionId};
use ringfence_proto::wire::end_cause_from_wire;
use ringfence_proto::{DecodeError, v1};

/// A lease as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// The name of the lease.
    pub name: LeaseName,
    /// The grant in force; `None`: no client holds it.
    pub holder: Option<GrantInfo>,
    /// The TTL of the holder's session. [`Duration::MAX`] if the session lasts as long as a Pod,
    /// zero if no client holds the lease.
    pub ttl: Duration,
    /// What is left of the holder's session unless it is kept alive, in cluster time.
    /// [`Duration::MAX`] and zero as for [`ttl`](Self::ttl).
    pub remaining: Duration,
    /// How many wait for it.
    pub waiters: u32,
    /// The greatest token ever granted for this name, if any was.
    pub floor: Option<FencingToken>,
    /// For how long no client is granted the lease, even if clients wait: the lock-delay of a grant
    /// that ended dirty, or a revoke that its holder may not know of. Zero: it is not blocked.
    pub blocked: Duration,
}

/// A grant as readers and watchers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantInfo {
    /// The name of the lease.
    pub name: LeaseName,
    /// The fencing token of the grant.
    pub token: FencingToken,
    /// The session that holds the lease.
    pub session: SessionId,
    /// Who the holder says it is.
    pub identity: String,
    /// What the holder publishes, at most 1 KiB.
    pub data: Bytes,
    /// The index of the log entry that granted it.
    pub index: u64,
    /// When it was granted, for people: milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
}

/// A grant that has ended, as watchers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndInfo {
    /// The name of the lease.
    pub name: LeaseName,
    /// The token of the grant that has ended.
    pub token: FencingToken,
    /// The session that held it.
    pub session: SessionId,
    /// Who its holder said it was.
    pub identity: String,
    /// Why it ended; `None`: for a reason that a newer cluster knows and this version does not.
    pub cause: Option<EndCause>,
    /// When it ended, for people: milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
}

impl LeaseInfo {
    pub(crate) fn from_wire(lease: v1::Lease) -> Result<Self, DecodeError> {
        Ok(Self {
            name: name(&lease.name)?,
            holder: lease.holder.map(GrantInfo::from_wire).transpose()?,
            ttl: lasting(lease.ttl_ms),
            remaining: lasting(lease.remaining_ms),
            waiters: lease.waiters,
            floor: FencingToken::new(lease.floor),
            blocked: Duration::from_millis(lease.blocked_ms),
        })
    }
}

impl GrantInfo {
    pub(crate) fn from_wire(grant: v1::Grant) -> Result<Self, DecodeError> {
        Ok(Self {
            name: name(&grant.name)?,
            token: token(grant.token)?,
            session: session(grant.session)?,
            identity: grant.identity,
            data: grant.data,
            index: grant.index,
            since_unix_ms: grant.since_unix_ms,
        })
    }
}

impl EndInfo {
    pub(crate) fn from_wire(ended: v1::GrantEnded) -> Result<Self, DecodeError> {
        Ok(Self {
            name: name(&ended.name)?,
            token: token(ended.token)?,
            session: session(ended.session)?,
            identity: ended.identity,
            cause: ended
                .cause
                .and_then(|cause| end_cause_from_wire(cause).ok()),
            at_unix_ms: ended.at_unix_ms,
        })
    }
}

fn name(raw: &str) -> Result<LeaseName, DecodeError> {
    LeaseName::parse(raw).map_err(|fault| DecodeError::Invalid {
        field: "name",
        why: fault.to_string(),
    })
}

fn token(raw: u64) -> Result<FencingToken, DecodeError> {
    FencingToken::new(raw).ok_or_else(|| DecodeError::Invalid {
        field: "token",
        why: format!("{raw} is none; 1 to 2^63 - 1 are"),
    })
}

fn session(raw: u64) -> Result<SessionId, DecodeError> {
    SessionId::new(raw).ok_or_else(|| DecodeError::Invalid {
        field: "session",
        why: format!("{raw} is no session's number"),
    })
}

/// A TTL or what is left of one: the greatest number stands for "as long as a Pod".
fn lasting(millis: u64) -> Duration {
    match millis {
        u64::MAX => Duration::MAX,
        millis => Duration::from_millis(millis),
    }
}

#[cfg(test)]
mod tests {
    use ringfence_proto::v1::end_cause::Kind;

    use super::*;

    fn grant() -> v1::Grant {
        v1::Grant {
            name: "db/main".into(),
            token: 7,
            session: 3,
            identity: "alice".into(),
            ..v1::Grant::default()
        }
    }

    #[test]
    fn a_lease_is_told_with_its_holder_or_without() {
        let held = v1::Lease {
            name: "db/main".into(),
            holder: Some(grant()),
            ttl_ms: u64::MAX,
            remaining_ms: 1_500,
            floor: 7,
            ..v1::Lease::default()
        };
        let held = LeaseInfo::from_wire(held).expect("it makes sense");
        assert_eq!(held.ttl, Duration::MAX);
        assert_eq!(held.remaining, Duration::from_millis(1_500));
        assert_eq!(held.holder.map(|grant| grant.token), held.floor);

        let free = v1::Lease {
            name: "db/main".into(),
            ..v1::Lease::default()
        };
        let free = LeaseInfo::from_wire(free).expect("it makes sense");
        assert_eq!((free.holder, free.floor), (None, None));
    }

    #[test]
    fn nonsense_is_named() {
        for (grant, fault) in [
            (
                v1::Grant {
                    name: "/".into(),
                    ..grant()
                },
                "name",
            ),
            (
                v1::Grant {
                    token: 0,
                    ..grant()
                },
                "token: 0",
            ),
            (
                v1::Grant {
                    session: 0,
                    ..grant()
                },
                "session: 0",
            ),
        ] {
            let error = GrantInfo::from_wire(grant).expect_err("it is nonsense");
            assert!(error.to_string().contains(fault), "{error}");
        }
    }

    #[test]
    fn a_cause_that_is_not_known_hides_no_end() {
        let ended = |kind: i32| v1::GrantEnded {
            name: "db".into(),
            token: 7,
            session: 3,
            cause: Some(v1::EndCause {
                kind,
                ..v1::EndCause::default()
            }),
            ..v1::GrantEnded::default()
        };
        let cause = |kind| EndInfo::from_wire(ended(kind)).map(|ended| ended.cause);
        assert_eq!(cause(Kind::Expired.into()), Ok(Some(EndCause::Expired)));
        assert_eq!(cause(1_000), Ok(None));
    }
}
