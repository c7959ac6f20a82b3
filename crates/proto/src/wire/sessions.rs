//! Sessions.

use bytes::Bytes;
use ringfence_core::{
    ClusterId, ClusterTime, Command, Evict, FencingToken, LostGrant, Millis, Open, OpenId, Opened,
    Rejection, Secret, SessionEnd, SessionId, SessionView,
};

use super::{
    check, cluster_id_to_wire, lost_grant_to_wire, pod_from_wire, pod_to_wire, session_end_to_wire,
    session_handle_from_wire,
};
use crate::v1::{self, Reason};
use crate::{DecodeError, Refusal, fields};

/// A session's TTL if its `Open` asks for none.
pub const TTL_STANDARD: Millis = Millis::from_secs(15);
/// The most sessions that one keep-alive message names.
pub const KEEP_ALIVE_SESSIONS_MAX: usize = 10_000;
/// The most acknowledged losses that one keep-alive message names.
pub const KEEP_ALIVE_ACKNOWLEDGED_MAX: usize = 10_000;
/// How many sessions a page of a list has unless the request says so.
pub const SESSIONS_PAGE_STANDARD: u32 = 1_000;
/// The most sessions that a page of a list has.
pub const SESSIONS_PAGE_MAX: u32 = 10_000;
/// The most leases that a session is shown with.
pub const SESSION_LEASES_SHOWN_MAX: usize = 4_096;

/// Keep-alives of many sessions, and losses that they have acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeepAlive {
    /// The sessions with their secrets, in the order of the message.
    pub sessions: Vec<(SessionId, Secret)>,
    /// Losses whose belief has ended.
    pub acknowledged: Vec<(SessionId, FencingToken)>,
    /// Handles that belong to no session, by the number they name: each is refused individually.
    pub malformed: Vec<(u64, Reason)>,
}

/// The command of an `Open` without an acquire.
///
/// # Errors
/// A refusal names the field that is not as it has to be. Whether the TTL is within the cluster's
/// bounds is for the state machine to say.
pub fn open_from_wire(open: v1::OpenRequest) -> Result<Open, Refusal> {
    if let Some(pod) = open.pod {
        let offered = format!("{}/{}", pod.namespace, pod.name);
        let allowed = "none here: open a session for a Pod alone, and acquire in it";
        return Err(Refusal::invalid("pod", offered, allowed));
    }
    Ok(Open {
        id: OpenId::new(check::sixteen(&open.id, "id")?),
        secret: Secret::new(check::sixteen(&open.secret, "secret")?),
        seen: open.seen_cluster_time_ms.map(ClusterTime),
        ttl: open.ttl_ms.map_or(TTL_STANDARD, Millis),
        identity: check::identity(&open.identity, "identity")?,
        acquire: None,
    })
}

/// An `Open` without its acquire.
#[must_use]
pub fn open_to_wire(open: &Open) -> v1::OpenRequest {
    v1::OpenRequest {
        id: Bytes::copy_from_slice(open.id.as_bytes()),
        secret: Bytes::copy_from_slice(open.secret.as_bytes()),
        seen_cluster_time_ms: open.seen.map(|time| time.0),
        ttl_ms: Some(open.ttl.0),
        identity: open.identity.as_str().into(),
        pod: None,
    }
}

/// The answer to an `Open`, without that to its acquire.
#[must_use]
pub fn opened_to_wire(opened: &Opened, time: ClusterTime, cluster: &ClusterId) -> v1::OpenResponse {
    v1::OpenResponse {
        session: opened.session.get(),
        ttl_ms: opened.ttl.0,
        cluster_time_ms: time.0,
        cluster_id: cluster_id_to_wire(cluster),
    }
}

/// The session and its TTL out of the answer to an `Open`.
///
/// # Errors
/// [`DecodeError`] if the session's number is 0.
pub fn opened_from_wire(opened: &v1::OpenResponse) -> Result<(SessionId, Millis), DecodeError> {
    Ok((
        fields::session(opened.session, "opened.session")?,
        Millis(opened.ttl_ms),
    ))
}

/// The sessions to keep alive; the message's `id` is for the caller to return.
///
/// # Errors
/// A refusal of the whole message if it names more than [`KEEP_ALIVE_SESSIONS_MAX`] sessions or
/// [`KEEP_ALIVE_ACKNOWLEDGED_MAX`] losses, or an acknowledgement is malformed. A malformed handle is
/// refused individually.
pub fn keep_alive_from_wire(keep_alive: v1::KeepAliveRequest) -> Result<KeepAlive, Refusal> {
    let offered = keep_alive.sessions.len();
    if offered > KEEP_ALIVE_SESSIONS_MAX {
        let allowed = format!("at most {KEEP_ALIVE_SESSIONS_MAX} in one message");
        return Err(Refusal::invalid(
            "sessions",
            format!("{offered} sessions"),
            allowed,
        ));
    }
    let offered = keep_alive.acknowledged.len();
    if offered > KEEP_ALIVE_ACKNOWLEDGED_MAX {
        let allowed = format!(
            "at most {KEEP_ALIVE_ACKNOWLEDGED_MAX} in one message: acknowledge the rest in the next"
        );
        return Err(Refusal::invalid(
            "acknowledged",
            format!("{offered} losses"),
            allowed,
        ));
    }
    let mut acknowledged = Vec::with_capacity(keep_alive.acknowledged.len());
    for loss in keep_alive.acknowledged {
        acknowledged.push((
            check::session(loss.session, "acknowledged.session")?,
            check::token(loss.token, "acknowledged.token")?,
        ));
    }
    let (mut sessions, mut malformed) = (Vec::with_capacity(offered), Vec::new());
    for handle in keep_alive.sessions {
        let number = handle.session;
        match session_handle_from_wire(Some(handle)) {
            Ok(handle) => sessions.push(handle),
            // A secret of another length is not the session's.
            Err(_) if number != 0 => malformed.push((number, Reason::WrongSecret)),
            Err(_) => malformed.push((number, Reason::InvalidArgument)),
        }
    }
    Ok(KeepAlive {
        sessions,
        acknowledged,
        malformed,
    })
}

/// The answer to keep-alives: which sessions have ended, and what the others have lost.
#[must_use]
pub fn kept_alive_to_wire(
    id: u64,
    time: ClusterTime,
    ended: &[(SessionId, Rejection)],
    lost: &[(SessionId, Vec<LostGrant>)],
    untold: &[SessionId],
) -> v1::KeepAliveResponse {
    let ended = ended
        .iter()
        .map(|(session, why)| session_state(*session, why));
    let lost = lost.iter().map(|(session, grants)| v1::SessionLosses {
        session: session.get(),
        grants: grants.iter().map(lost_grant_to_wire).collect(),
    });
    v1::KeepAliveResponse {
        id,
        ended: ended.collect(),
        lost: lost.collect(),
        cluster_time_ms: time.0,
        refusal: None,
        untold: untold.iter().map(|session| session.get()).collect(),
    }
}

/// The answer with handles that belong to no session, see [`KeepAlive::malformed`].
#[must_use]
pub fn with_malformed(
    mut answer: v1::KeepAliveResponse,
    malformed: &[(u64, Reason)],
) -> v1::KeepAliveResponse {
    let states = malformed.iter().map(|(session, reason)| v1::SessionState {
        session: *session,
        reason: (*reason).into(),
        cause: None,
    });
    answer.ended.extend(states);
    answer
}

/// The answer to keep-alives of which nothing was acknowledged.
#[must_use]
pub fn keep_alive_refused_to_wire(id: u64, refusal: Refusal) -> v1::KeepAliveResponse {
    v1::KeepAliveResponse {
        id,
        refusal: Some(refusal.into()),
        ..Default::default()
    }
}

fn session_state(session: SessionId, why: &Rejection) -> v1::SessionState {
    let cause = match why {
        Rejection::SessionExpired { cause } => cause.as_ref().map(session_end_to_wire),
        _ => None,
    };
    let reason = match why {
        Rejection::WrongSecret => Reason::WrongSecret,
        // The session lives; it is not this caller's, or its caller is refused everything.
        Rejection::OtherPrincipal | Rejection::Banned { .. } => Reason::PermissionDenied,
        Rejection::TokenRevoked { .. } => Reason::Unauthenticated,
        _ => Reason::SessionExpired,
    };
    v1::SessionState {
        session: session.get(),
        reason: reason.into(),
        cause,
    }
}

/// The command of a `Close`.
///
/// # Errors
/// A refusal if the handle is missing or malformed.
pub fn close_from_wire(close: v1::CloseRequest) -> Result<Command, Refusal> {
    let (session, secret) = session_handle_from_wire(close.session)?;
    Ok(Command::Close { session, secret })
}

/// The answer to a `Close`.
#[must_use]
pub fn closed_to_wire(cause: Option<&SessionEnd>, time: ClusterTime) -> v1::CloseResponse {
    v1::CloseResponse {
        cause: cause.map(session_end_to_wire),
        cluster_time_ms: time.0,
    }
}

/// The command of an `Evict`.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn evict_from_wire(evict: v1::EvictRequest) -> Result<Evict, Refusal> {
    Ok(Evict {
        session: check::session(evict.session, "session")?,
        reason: check::operator_text(evict.reason, "reason")?,
        operator: check::operator_text(evict.operator, "operator")?,
    })
}

/// Which session is to be read.
///
/// # Errors
/// A refusal if its number is 0.
pub fn get_session_from_wire(get: &v1::GetSessionRequest) -> Result<SessionId, Refusal> {
    check::session(get.session, "session")
}

/// How many sessions, and behind which one, a list is to show.
///
/// # Errors
/// A refusal if the page is larger than [`SESSIONS_PAGE_MAX`].
pub fn list_sessions_from_wire(
    list: &v1::ListSessionsRequest,
) -> Result<(u32, Option<SessionId>), Refusal> {
    let size = check::page_size(
        list.page_size,
        SESSIONS_PAGE_STANDARD,
        SESSIONS_PAGE_MAX,
        "page_size",
    )?;
    Ok((size, SessionId::new(list.after)))
}

/// A session as readers see it, with at most [`SESSION_LEASES_SHOWN_MAX`] of its leases.
#[must_use]
pub fn session_to_wire(session: &SessionView) -> v1::Session {
    let shown = session.leases.iter().take(SESSION_LEASES_SHOWN_MAX);
    let leases = shown.map(|(name, token)| v1::HeldName {
        name: name.as_str().into(),
        token: token.get(),
    });
    v1::Session {
        session: session.session.get(),
        identity: session.identity.as_str().into(),
        ttl_ms: session.ttl.0,
        remaining_ms: session.remaining.0,
        leases: leases.collect(),
        waits: session.waits,
        pod: session.pod.as_ref().map(pod_to_wire),
    }
}

/// A session as a server reported it.
///
/// # Errors
/// [`DecodeError`] names the field that is not as it has to be.
pub fn session_from_wire(session: v1::Session) -> Result<SessionView, DecodeError> {
    let held = |held: v1::HeldName| {
        let name = fields::lease_name(&held.name, "session.leases.name")?;
        Ok((name, fields::token(held.token, "session.leases.token")?))
    };
    let pod = session.pod.as_ref().map(pod_from_wire).transpose();
    Ok(SessionView {
        session: fields::session(session.session, "session.session")?,
        identity: fields::identity(&session.identity, "session.identity")?,
        ttl: Millis(session.ttl_ms),
        remaining: Millis(session.remaining_ms),
        leases: session
            .leases
            .into_iter()
            .map(held)
            .collect::<Result<_, DecodeError>>()?,
        waits: session.waits,
        pod: pod.map_err(|refusal| DecodeError::invalid("session.pod", refusal.message))?,
    })
}
