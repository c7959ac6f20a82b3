//! Opening a session, and resuming one from its handle.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::Rng;
use ringfence_core::{Identity, Pod, Rejection, Secret, SessionId};
use ringfence_proto::Refusal as WireRefusal;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{
    self, GetSessionRequest, KeepAliveRequest, OpenRequest, client_frame, server_frame,
};
use ringfence_proto::wire::pod_to_wire;

use crate::clock;
use crate::session::client::Client;
use crate::session::error::{AttachError, OpenError};
use crate::session::handle::SessionHandle;
use crate::session::inner::SessionInner;
use crate::session::loss::Loss;
use crate::session::request_numbers::RequestNumbers;
use crate::session::ttl;
use crate::session::{Session, SessionGuard, SessionOptions};
use crate::transport::calls::{Answer, ReplyMode};
use crate::transport::driver;
use crate::transport::error::CallError;
use crate::transport::random;
use crate::transport::refusal::{Reason, Refusal};
use crate::transport::unary;

impl Client {
    /// Opens a session and keeps it alive until it is closed, left, or lost.
    ///
    /// # Errors
    /// [`OpenError`] if the options are refused or the cluster does not answer in time.
    pub async fn open_session(&self, options: SessionOptions) -> Result<Session, OpenError> {
        let lifetime = Lifetime::Ttl {
            ttl: options.ttl,
            renew_deadline: Duration::MAX,
        };
        open(self, options.identity, lifetime).await
    }

    /// Resumes a session from its handle and keeps it alive. `ttl` is what the session was opened
    /// with; the cluster is asked, and the smaller one counts. Pass [`Duration::MAX`] to take the
    /// cluster's word.
    ///
    /// One process at a time should send requests for a session; others may keep it alive.
    /// Dropping a resumed session neither closes it nor releases what it holds.
    ///
    /// # Errors
    /// [`AttachError`] if the session has ended, the secret is wrong, or another principal opened it.
    pub async fn attach(
        &self,
        handle: SessionHandle,
        ttl: Duration,
    ) -> Result<Session, AttachError> {
        attach(self, handle, ttl).await
    }
}

/// What a session's life depends on.
pub(crate) enum Lifetime {
    /// The session ends unless it is kept alive.
    Ttl {
        /// How long it outlives the last one.
        ttl: Duration,
        /// It is not believed in for longer than this after a keep-alive that was acknowledged.
        renew_deadline: Duration,
    },
    /// On a Pod's life.
    Pod(Pod),
}

/// Opens a session. If no caller waits for it any more when the answer comes, it is closed.
pub(crate) async fn open(
    client: &Client,
    identity: String,
    lifetime: Lifetime,
) -> Result<Session, OpenError> {
    let Some(under_way) = client.inner.begin_opening().await else {
        return Err(OpenError::ShutDown);
    };
    let identity = Identity::parse(&identity).map_err(OpenError::InvalidIdentity)?;
    let (ttl, renew_deadline, pod) = match lifetime {
        Lifetime::Ttl {
            ttl,
            renew_deadline,
        } => (Some(ttl), renew_deadline, None),
        Lifetime::Pod(pod) => (None, Duration::MAX, Some(pod)),
    };
    let secret = Secret::new(random::rng().random());
    let opener = client.clone();
    // On the client's thread, so that a caller that drops the future does not abandon a session
    // which the cluster has opened: the task completes, and its result closes the session when no
    // one takes it.
    let opening = client.inner.transport.thread.spawn(async move {
        let request = OpenRequest {
            secret: Bytes::copy_from_slice(secret.as_bytes()),
            ttl_ms: ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            identity: identity.as_str().to_owned(),
            pod: pod.as_ref().map(pod_to_wire),
            ..OpenRequest::default()
        };
        let answer = ask(&opener, request, client_frame::Body::Open);
        let answer = answer.await.map_err(OpenError::Call)?;
        let Answer {
            body: server_frame::Body::Open(reply),
            sent,
        } = answer
        else {
            return Err(OpenError::Call(CallError::unexpected_reply()));
        };
        let session =
            SessionId::new(reply.session).ok_or(OpenError::Call(CallError::unexpected_reply()))?;
        let handle = SessionHandle {
            session,
            secret,
            cluster: opener.inner.transport.cluster(),
        };
        let ttl = ttl::of_answer(reply.ttl_ms, pod.is_some()).map_err(OpenError::Call)?;
        let session = opener
            .inner
            .new_session(handle, ttl, sent, RequestNumbers::from(1));
        let session = session.with_renew_deadline(renew_deadline, sent);
        let kept = keep(&opener, session, true).map_err(|_| OpenError::TooLate);
        let session = unless_shut_down(kept?).await.ok_or(OpenError::ShutDown)?;
        // Only now may a shutdown go on: the session is in the table, where the shutdown finds and
        // closes it.
        drop(under_way);
        Ok(session)
    });
    // Dropping this future drops the session that the task returns, and so closes it.
    match opening.await {
        Ok(opened) => opened,
        Err(_) => Err(OpenError::Call(CallError::stopped())),
    }
}

/// How often a session is asked for again, under another id.
const TRIES: u32 = 5;
/// Between two tries of one for a Pod.
const POD_PAUSE: Duration = Duration::from_millis(100);

/// Sends an `Open` with the newest cluster time that this client knows: a late duplicate is refused by
/// it. The time of a client that has asked nothing for a minute is too old as well. For a Pod it has
/// to be later than what the process knew that was in its container before, and the greeting of a
/// node that is behind may show an older one. Such a refusal shows the present time, and has no
/// effect.
///
/// A call is repeated under its id until it is answered. If the id is known and its session over,
/// an earlier try opened it, no caller heard, and no task kept it alive: there is nothing to keep,
/// and another is asked for. Not for a Pod: its session ended because its container did, and asking
/// with a later time would end the successor's.
pub(crate) async fn ask(
    client: &Client,
    mut request: OpenRequest,
    body: impl Fn(OpenRequest) -> client_frame::Body,
) -> Result<Answer, CallError> {
    let transport = &client.inner.transport;
    let mut tries = TRIES;
    loop {
        let id: [u8; 16] = random::rng().random();
        request.id = Bytes::copy_from_slice(&id);
        request.seen_cluster_time_ms = Some(transport.cluster_time_ms());
        let body = body(request.clone());
        let refusal = match transport
            .call(body, ReplyMode::Prompt, transport.deadline())
            .await
        {
            Err(CallError::Refused(refusal)) => refusal,
            other => return other,
        };
        tries -= 1;
        let for_pod = request.pod.is_some();
        match refusal.reason {
            Reason::OpenTooOld if tries > 0 => {}
            Reason::OpenIdUsed if !for_pod && tries > 0 => continue,
            _ => return Err(CallError::Refused(refusal)),
        }
        if let Some(Ok(now)) = refusal.metadata.get("now").map(|now| now.parse()) {
            transport.saw_cluster_time(now);
        }
        if for_pod {
            transport.sleep(POD_PAUSE).await;
        }
    }
}

pub(crate) async fn attach(
    client: &Client,
    handle: SessionHandle,
    ttl: Duration,
) -> Result<Session, AttachError> {
    let Some(_under_way) = client.inner.begin_opening().await else {
        return Err(AttachError::ShutDown);
    };
    let is_others = || {
        let present = client.inner.transport.cluster();
        let (Some(named), Some(present)) = (handle.cluster, present) else {
            return false;
        };
        named != present
    };
    let known = ttl_of(client, handle.session).await;
    // Behind the first answer, when the cluster is known, and before what it says of the number: in a
    // cluster that the handle does not mean, that is the number of no session.
    if is_others() {
        return Err(AttachError::Lost(Loss::ClusterChanged));
    }
    // A caller without a right to look at the session is not necessarily without one to it, and the
    // keep-alive says whose it is. The rule that looking takes would not help.
    let known = match known {
        Err(AttachError::Call(CallError::Refused(refusal))) if lacks_a_rule(&refusal) => {
            Err(AttachError::Call(CallError::Refused(refusal)))
        }
        known => Ok(known?),
    };
    let request = KeepAliveRequest {
        sessions: vec![handle.to_wire()],
        ..KeepAliveRequest::default()
    };
    let body = client_frame::Body::KeepAlive(request);
    let transport = &client.inner.transport;
    let (through, deadline) = (Arc::clone(transport), transport.deadline());
    let renewing = async move { through.call(body, ReplyMode::Prompt, deadline).await };
    let answer = driver::on_thread(&transport.thread, renewing)
        .await
        .map_err(AttachError::Call)?;
    let Answer {
        body: server_frame::Body::KeepAlive(reply),
        sent,
    } = answer
    else {
        return Err(AttachError::Call(CallError::unexpected_reply()));
    };
    if let Some(ended) = reply.ended.first() {
        return Err(not_resumed(ended));
    }
    let ttl = ttl.min(known?);
    // Above all numbers that were spent before, in this process or another. If the wall clock was
    // set back since, the cluster's refusal tells the right one.
    let numbers = RequestNumbers::from(clock::wall_micros().max(1));
    let session = client.inner.new_session(handle, ttl, sent, numbers);
    session.mark_shared();
    let kept = keep(client, session, false).map_err(AttachError::Lost);
    unless_shut_down(kept?).await.ok_or(AttachError::ShutDown)
}

fn lacks_a_rule(refusal: &Refusal) -> bool {
    refusal.reason == Reason::PermissionDenied && refusal.metadata.contains_key("rule")
}

/// Why a keep-alive did not extend a session: it has ended, or it lives and is not this caller's.
fn not_resumed(state: &v1::SessionState) -> AttachError {
    let rejection = match state.reason() {
        v1::Reason::WrongSecret => return AttachError::Lost(Loss::WrongSecret),
        v1::Reason::PermissionDenied => Rejection::OtherPrincipal,
        v1::Reason::Unauthenticated => Rejection::TokenRevoked { id: 0 },
        _ => return AttachError::Lost(Loss::of_session(state.cause.clone())),
    };
    let refusal = Refusal::of(WireRefusal::from_rejection(&rejection));
    AttachError::Call(refusal.map_or_else(CallError::unexpected_reply, |refusal| {
        CallError::Refused(Box::new(refusal))
    }))
}

/// Keeps the session alive from now on, unless its window has passed already.
pub(crate) fn keep(client: &Client, session: SessionInner, ours: bool) -> Result<Session, Loss> {
    let session = Arc::new(session);
    if ours {
        session.own();
    }
    // Registered before the window is checked: a session that is already over is then removed by
    // the same code that removes every lost session.
    client.inner.register(&session);
    let guard = Arc::new(SessionGuard {
        client: client.clone(),
        session,
        ours,
    });
    match guard.session.loss() {
        None => Ok(Session { guard }),
        Some(loss) => Err(loss),
    }
}

/// The session, unless the client was shut down while it was opened or resumed: the caller that
/// shuts it down may have looked at its sessions before this one was among them.
pub(crate) async fn unless_shut_down(opened: Session) -> Option<Session> {
    let SessionGuard {
        client,
        session,
        ours,
    } = &*opened.guard;
    if !client.inner.is_shut_down() {
        return Some(opened);
    }
    if *ours && session.lose(&Loss::Closed) {
        let deadline = session.transport.deadline();
        let closed = client.close(session, deadline).await;
        if let Err(error) = closed {
            tracing::debug!(session = %session.id(), %error, "not closed; it will expire");
        }
    }
    None
}

/// The TTL of a session, from the cluster: believing in a longer one would be unsafe.
async fn ttl_of(client: &Client, session: SessionId) -> Result<Duration, AttachError> {
    let request = GetSessionRequest {
        session: session.get(),
        read: None,
    };
    let answer = unary::call(&client.inner.transport, move |channel| async move {
        SessionsClient::new(channel).get(request).await
    });
    match answer.await {
        Ok(reply) => {
            let session = reply
                .session
                .ok_or(AttachError::Call(CallError::unexpected_reply()))?;
            ttl::of_answer(session.ttl_ms, session.pod.is_some()).map_err(AttachError::Call)
        }
        Err(CallError::Refused(refusal))
            if matches!(refusal.reason, Reason::NotFound | Reason::SessionExpired) =>
        {
            Err(AttachError::Lost(Loss::SessionEnded { cause: None }))
        }
        Err(error) => Err(AttachError::Call(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a keep-alive says of a session that it did not extend.
    fn told(reason: v1::Reason) -> AttachError {
        not_resumed(&v1::SessionState {
            session: 1,
            reason: reason.into(),
            cause: None,
        })
    }

    #[test]
    fn a_session_that_is_refused_to_its_caller_is_not_called_ended() {
        for (reason, expected) in [
            (v1::Reason::PermissionDenied, Reason::PermissionDenied),
            (v1::Reason::Unauthenticated, Reason::Unauthenticated),
        ] {
            let refused = told(reason);
            let AttachError::Call(CallError::Refused(refusal)) = &refused else {
                panic!("{refused:?}")
            };
            assert_eq!(refusal.reason, expected);
        }
        let wrong = told(v1::Reason::WrongSecret);
        assert!(matches!(wrong, AttachError::Lost(Loss::WrongSecret)));
        let ended = told(v1::Reason::SessionExpired);
        assert!(matches!(
            ended,
            AttachError::Lost(Loss::SessionEnded { cause: None })
        ));
    }
}
