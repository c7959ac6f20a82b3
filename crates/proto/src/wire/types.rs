//! What the services share.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{
    ClusterId, ClusterTime, EndCause, Granted, LostGrant, Secret, SessionEnd, SessionId, WallTime,
};

use super::{check, pods};
use crate::text::from_hex;
use crate::v1::{self, end_cause, session_end};
use crate::{DecodeError, Refusal, fields};

/// The greatest `max_staleness_ms` of a read.
pub const STALENESS_MAX: Duration = Duration::from_secs(60);

/// A place in the stream of events, of a named cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WirePosition {
    /// The cluster whose log it is.
    pub cluster: ClusterId,
    /// The log index.
    pub index: u64,
    /// How many events of that index were reported already.
    pub n: u32,
    /// The Raft term of the entry at that index, if it is known.
    pub term: Option<u64>,
}

/// `CLUSTER.INDEX.N.TERM`, the cluster in hex; without the term if it is not known.
impl fmt::Display for WirePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.cluster, self.index, self.n)?;
        match self.term {
            Some(term) => write!(f, ".{term}"),
            None => Ok(()),
        }
    }
}

impl FromStr for WirePosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let mut parts = text.split('.');
            let cluster = ClusterId::from_slice(&from_hex(parts.next()?)?)?;
            let index = parts.next()?.parse().ok()?;
            let n = parts.next()?.parse().ok()?;
            let term: u64 = parts.next().map_or(Ok(0), str::parse).ok()?;
            parts.next().is_none().then(|| Self {
                cluster,
                index,
                n,
                term: (term > 0).then_some(term),
            })
        };
        read().ok_or_else(|| {
            "a position is CLUSTER.INDEX.N or CLUSTER.INDEX.N.TERM, as `lease watch --json` \
             prints it"
                .into()
        })
    }
}

/// The session and the secret that proves it.
///
/// # Errors
/// A refusal if the handle is missing or malformed.
pub fn session_handle_from_wire(
    handle: Option<v1::SessionHandle>,
) -> Result<(SessionId, Secret), Refusal> {
    let handle = handle.ok_or_else(|| Refusal::missing("session", "a session handle"))?;
    Ok((
        check::session(handle.session, "session.session")?,
        Secret::new(check::sixteen(&handle.secret, "session.secret")?),
    ))
}

/// The handle with which a client proves a request.
#[must_use]
pub fn session_handle_to_wire(session: SessionId, secret: &Secret) -> v1::SessionHandle {
    v1::SessionHandle {
        session: session.get(),
        secret: Bytes::copy_from_slice(secret.as_bytes()),
    }
}

/// A cluster's name as 16 bytes.
#[must_use]
pub fn cluster_id_to_wire(cluster: &ClusterId) -> Bytes {
    Bytes::copy_from_slice(cluster.as_bytes())
}

/// A cluster's name; `None` if there are no bytes, which is how a node says that it has none.
///
/// # Errors
/// [`DecodeError`] if there are some bytes, but not 16.
pub fn cluster_id_from_wire(raw: &[u8]) -> Result<Option<ClusterId>, DecodeError> {
    if raw.is_empty() {
        return Ok(None);
    }
    let offered = || format!("{} bytes; a cluster's name has 16", raw.len());
    ClusterId::from_slice(raw)
        .map(Some)
        .ok_or_else(|| DecodeError::invalid("cluster_id", offered()))
}

/// A grant as watchers and readers see it.
#[must_use]
pub fn grant_to_wire(granted: &Granted) -> v1::Grant {
    v1::Grant {
        name: granted.name.as_str().into(),
        token: granted.token.get(),
        session: granted.session.get(),
        identity: granted.identity.as_str().into(),
        data: fields::data_bytes(&granted.data),
        request: granted.request.get(),
        index: granted.index,
        since_unix_ms: granted.since.0,
    }
}

/// A grant that a server reported.
///
/// # Errors
/// [`DecodeError`] names the field that is not as it has to be.
pub fn grant_from_wire(grant: v1::Grant) -> Result<Granted, DecodeError> {
    Ok(Granted {
        name: fields::lease_name(&grant.name, "grant.name")?,
        token: fields::token(grant.token, "grant.token")?,
        session: fields::session(grant.session, "grant.session")?,
        identity: fields::identity(&grant.identity, "grant.identity")?,
        data: fields::holder_data(&grant.data, "grant.data")?,
        request: fields::number(grant.request, "grant.request")?,
        index: grant.index,
        since: WallTime(grant.since_unix_ms),
    })
}

/// Why a grant ended.
#[must_use]
pub fn end_cause_to_wire(cause: &EndCause) -> v1::EndCause {
    use end_cause::Kind;
    let plain = |kind: Kind| v1::EndCause {
        kind: kind.into(),
        ..v1::EndCause::default()
    };
    let by_hand = |kind: Kind, operator: &str, reason: &str| v1::EndCause {
        operator: operator.into(),
        reason: reason.into(),
        ..plain(kind)
    };
    match cause {
        EndCause::Released => plain(Kind::Released),
        EndCause::Expired => plain(Kind::Expired),
        EndCause::Closed => plain(Kind::Closed),
        EndCause::Revoked { operator, reason } => by_hand(Kind::Revoked, operator, reason),
        EndCause::Evicted { operator, reason } => by_hand(Kind::Evicted, operator, reason),
        EndCause::Transferred { to } => v1::EndCause {
            to_session: to.get(),
            ..plain(Kind::Transferred)
        },
        EndCause::PodEnded { uid, seen } => v1::EndCause {
            pod_uid: uid.as_str().into(),
            pod_seen: pods::seen_to_wire(*seen).into(),
            ..plain(Kind::PodEnded)
        },
    }
}

/// Why a grant ended, as a server reported it.
///
/// # Errors
/// [`DecodeError`] if the cause is none that this version knows.
pub fn end_cause_from_wire(cause: v1::EndCause) -> Result<EndCause, DecodeError> {
    use end_cause::Kind;
    let field = "end_cause.kind";
    let v1::EndCause {
        kind,
        operator,
        reason,
        to_session,
        pod_uid,
        pod_seen,
    } = cause;
    Ok(match Kind::try_from(kind) {
        Ok(Kind::Released) => EndCause::Released,
        Ok(Kind::Expired) => EndCause::Expired,
        Ok(Kind::Closed) => EndCause::Closed,
        Ok(Kind::Revoked) => EndCause::Revoked { operator, reason },
        Ok(Kind::Evicted) => EndCause::Evicted { operator, reason },
        Ok(Kind::Transferred) => EndCause::Transferred {
            to: fields::session(to_session, "end_cause.to_session")?,
        },
        Ok(Kind::PodEnded) => {
            let (uid, seen) = pods::ended_from_wire(&pod_uid, pod_seen)?;
            EndCause::PodEnded { uid, seen }
        }
        Ok(Kind::Unspecified) => return Err(DecodeError::Missing { field }),
        Err(_) => {
            return Err(DecodeError::invalid(
                field,
                format!("{kind} is no known cause"),
            ));
        }
    })
}

/// Why a session ended.
#[must_use]
pub fn session_end_to_wire(cause: &SessionEnd) -> v1::SessionEnd {
    use session_end::Kind;
    let plain = |kind: Kind| v1::SessionEnd {
        kind: kind.into(),
        ..v1::SessionEnd::default()
    };
    match cause {
        SessionEnd::Closed => plain(Kind::Closed),
        SessionEnd::Expired => plain(Kind::Expired),
        SessionEnd::Evicted { operator, reason } => v1::SessionEnd {
            operator: operator.clone(),
            reason: reason.clone(),
            ..plain(Kind::Evicted)
        },
        SessionEnd::PodEnded { uid, seen } => v1::SessionEnd {
            pod_uid: uid.as_str().into(),
            pod_seen: pods::seen_to_wire(*seen).into(),
            ..plain(Kind::PodEnded)
        },
    }
}

/// Why a session ended, as a server reported it.
///
/// # Errors
/// [`DecodeError`] if the cause is none that this version knows.
pub fn session_end_from_wire(cause: v1::SessionEnd) -> Result<SessionEnd, DecodeError> {
    use session_end::Kind;
    let field = "session_end.kind";
    let v1::SessionEnd {
        kind,
        operator,
        reason,
        pod_uid,
        pod_seen,
    } = cause;
    match Kind::try_from(kind) {
        Ok(Kind::Closed) => Ok(SessionEnd::Closed),
        Ok(Kind::Expired) => Ok(SessionEnd::Expired),
        Ok(Kind::Evicted) => Ok(SessionEnd::Evicted { operator, reason }),
        Ok(Kind::PodEnded) => {
            let (uid, seen) = pods::ended_from_wire(&pod_uid, pod_seen)?;
            Ok(SessionEnd::PodEnded { uid, seen })
        }
        Ok(Kind::Unspecified) => Err(DecodeError::Missing { field }),
        Err(_) => Err(DecodeError::invalid(
            field,
            format!("{kind} is no known cause"),
        )),
    }
}

/// A grant that ended against its session's will.
#[must_use]
pub fn lost_grant_to_wire(lost: &LostGrant) -> v1::LostGrant {
    v1::LostGrant {
        name: lost.name.as_str().into(),
        token: lost.token.get(),
        cause: Some(end_cause_to_wire(&lost.cause)),
    }
}

/// A grant that ended against its session's will, as a server reported it.
///
/// # Errors
/// [`DecodeError`] names the field that is not as it has to be.
pub fn lost_grant_from_wire(lost: v1::LostGrant) -> Result<LostGrant, DecodeError> {
    Ok(LostGrant {
        name: fields::lease_name(&lost.name, "lost.name")?,
        token: fields::token(lost.token, "lost.token")?,
        cause: end_cause_from_wire(fields::there(lost.cause, "lost.cause")?)?,
    })
}

/// A place in the stream of events.
#[must_use]
pub fn position_to_wire(position: WirePosition) -> v1::Position {
    v1::Position {
        cluster_id: cluster_id_to_wire(&position.cluster),
        index: position.index,
        n: position.n,
        term: position.term.unwrap_or(0),
    }
}

/// A place in the stream of events, as anybody offers it.
///
/// # Errors
/// A refusal if its cluster is not 16 bytes.
pub fn position_from_wire(position: &v1::Position) -> Result<WirePosition, Refusal> {
    let cluster = check::sixteen(&position.cluster_id, "position.cluster_id")?;
    Ok(WirePosition {
        cluster: ClusterId::new(cluster),
        index: position.index,
        n: position.n,
        term: (position.term > 0).then_some(position.term),
    })
}

/// How old an answer may be; `None` asks for a linearizable read.
///
/// # Errors
/// A refusal above [`STALENESS_MAX`].
pub fn max_staleness_from_wire(read: Option<v1::ReadOptions>) -> Result<Option<Duration>, Refusal> {
    let millis = read.map_or(0, |read| read.max_staleness_ms);
    let staleness = Duration::from_millis(millis);
    if staleness > STALENESS_MAX {
        let allowed = format!("0 to {}", STALENESS_MAX.as_millis());
        return Err(Refusal::invalid("read.max_staleness_ms", millis, allowed));
    }
    Ok((millis > 0).then_some(staleness))
}

/// At which point of the log a read was answered; `age` is zero for linearizable reads. A part of
/// a millisecond counts as a whole one.
#[must_use]
pub fn read_point_to_wire(index: u64, time: ClusterTime, age: Duration) -> v1::ReadPoint {
    let age_ms = u64::try_from(age.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    v1::ReadPoint {
        index,
        cluster_time_ms: time.0,
        age_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_its_text_form() {
        for text in [
            "000102030405060708090a0b0c0d0e0f.42.3",
            "000102030405060708090a0b0c0d0e0f.42.3.7",
        ] {
            let read = text.parse::<WirePosition>().map(|read| read.to_string());
            assert_eq!(read.as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_is_no_position_is_refused() {
        for raw in [
            "",
            "42.3",
            "00.42.3",
            "000102030405060708090a0b0c0d0e0f.42.3.4.5",
            "000102030405060708090a0b0c0d0e0f.42.3.x",
        ] {
            let read = raw.parse::<WirePosition>();
            assert!(read.is_err(), "{raw:?} was read as a position");
        }
    }
}
