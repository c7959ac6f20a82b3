//! Opening a session, and resuming one from its handle.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::Rng;
use ringfence_core::{Identity, Pod, Secret, SessionId};
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{
    GetSessionRequest, KeepAliveRequest, OpenRequest, Reason, client_frame, server_frame,
};

use ringfence_proto::wire::pod_to_wire;

use crate::calls::{Answer, Manner};
use crate::driver::Tether;
use crate::error::{AttachError, CallError, OpenError};
use crate::handle::SessionHandle;
use crate::hub::Hub;
use crate::liveness::Liveness;
use crate::loss::Loss;
use crate::numbers::Numbers;
use crate::session::{Hold, Session};
use crate::{chance, client, clock, unary};

/// What a session's life depends on.
pub(crate) enum Life {
    /// On keep-alives.
    Ttl {
        /// How long it outlives the last one.
        ttl: Duration,
        /// It is not believed in for longer than this after a keep-alive that was acknowledged.
        patience: Duration,
    },
    /// On a Pod's life.
    Pod(Pod),
}

/// Opens a session. If nobody waits for it any more when the answer comes, it is closed.
pub(crate) async fn open(
    hub: &Arc<Hub>,
    tether: &Arc<Tether>,
    identity: String,
    life: Life,
) -> Result<Session, OpenError> {
    let identity = Identity::parse(&identity).map_err(OpenError::InvalidIdentity)?;
    let (ttl, patience, pod) = match life {
        Life::Ttl { ttl, patience } => (ttl, patience, None),
        Life::Pod(pod) => (Duration::ZERO, Duration::MAX, Some(pod)),
    };
    let secret = Secret::new(chance::rng().random());
    let (shared, tether) = (Arc::clone(hub), Arc::clone(tether));
    let opening = hub.thread.spawn(async move {
        let hub = shared;
        let request = OpenRequest {
            secret: Bytes::copy_from_slice(secret.as_bytes()),
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            identity: identity.as_str().to_owned(),
            pod: pod.as_ref().map(pod_to_wire),
            ..OpenRequest::default()
        };
        let answer = ask(&hub, request).await.map_err(OpenError::Call)?;
        let Answer {
            body: server_frame::Body::Open(reply),
            sent,
        } = answer
        else {
            return Err(OpenError::Call(misfit()));
        };
        let session = SessionId::new(reply.session).ok_or(OpenError::Call(misfit()))?;
        let handle = SessionHandle { session, secret };
        let ttl = Duration::from_millis(reply.ttl_ms);
        let liveness = Liveness::new(hub, handle, ttl, sent, Numbers::from(1));
        let liveness = Arc::new(liveness.with_patience(patience, sent));
        keep(liveness, tether, true).map_err(|_| OpenError::TooLate)
    });
    // Dropping this future drops the session that the task returns, and so closes it.
    match opening.await {
        Ok(opened) => opened,
        Err(_) => Err(OpenError::Call(CallError::Unknown {
            why: "the client has stopped".into(),
        })),
    }
}

/// How often a session is asked for anew, under another id.
const TRIES: u32 = 5;
/// Between two tries of one for a Pod.
const POD_PAUSE: Duration = Duration::from_millis(100);

/// Sends an `Open`. For a Pod it has to know a later cluster time than the process that was in its
/// container before; the greeting of a node that is behind may not tell one, a refusal does.
///
/// A call is repeated under its id until it is answered. If the id is known and its session over,
/// an earlier try opened it, nobody heard, and nobody kept it alive: there is nothing to keep, and
/// another is asked for. Not for a Pod: its session ended because its container did, and asking
/// with a later time would end the successor's.
async fn ask(hub: &Arc<Hub>, mut request: OpenRequest) -> Result<Answer, CallError> {
    let mut tries = TRIES;
    loop {
        let id: [u8; 16] = chance::rng().random();
        request.id = Bytes::copy_from_slice(&id);
        request.seen_cluster_time_ms = Some(hub.cluster_time_ms());
        let body = client_frame::Body::Open(request.clone());
        let refusal = match hub.call(body, Manner::Prompt, hub.deadline()).await {
            Err(CallError::Refused(refusal)) => refusal,
            other => return other,
        };
        tries -= 1;
        let for_pod = request.pod.is_some();
        match refusal.reason {
            Reason::OpenTooOld if for_pod && tries > 0 => {}
            Reason::OpenIdUsed if !for_pod && tries > 0 => continue,
            _ => return Err(CallError::Refused(refusal)),
        }
        if let Some(Ok(now)) = refusal.metadata.get("now").map(|now| now.parse()) {
            hub.saw_cluster_time(now);
        }
        hub.options.clock.sleep_until(hub.now() + POD_PAUSE).await;
    }
}

/// Resumes a session.
pub(crate) async fn attach(
    hub: &Arc<Hub>,
    tether: &Arc<Tether>,
    handle: SessionHandle,
    ttl: Duration,
) -> Result<Session, AttachError> {
    let ttl = ttl.min(ttl_of(hub, handle.session).await?);
    let request = KeepAliveRequest {
        sessions: vec![handle.to_wire()],
        ..KeepAliveRequest::default()
    };
    let body = client_frame::Body::KeepAlive(request);
    let (shared, deadline) = (Arc::clone(hub), hub.deadline());
    let renewing = async move { shared.call(body, Manner::Prompt, deadline).await };
    let answer = client::on_thread(hub, renewing)
        .await
        .map_err(AttachError::Call)?;
    let Answer {
        body: server_frame::Body::KeepAlive(reply),
        sent,
    } = answer
    else {
        return Err(AttachError::Call(misfit()));
    };
    if let Some(ended) = reply.ended.first() {
        let loss = match ended.reason() {
            Reason::WrongSecret => Loss::WrongSecret,
            _ => Loss::SessionEnded {
                cause: ended.cause.clone(),
            },
        };
        return Err(AttachError::Lost(loss));
    }
    // Above all numbers that were spent before, in this process or another. If the wall clock was
    // set back since, the cluster's refusal tells the right one.
    let numbers = Numbers::from(clock::wall_micros().max(1));
    let liveness = Arc::new(Liveness::new(Arc::clone(hub), handle, ttl, sent, numbers));
    keep(liveness, Arc::clone(tether), false).map_err(AttachError::Lost)
}

/// Keeps the session alive from now on, unless its window has passed already.
fn keep(liveness: Arc<Liveness>, tether: Arc<Tether>, ours: bool) -> Result<Session, Loss> {
    let hub = Arc::clone(&liveness.hub);
    hub.register(&liveness);
    let hold = Arc::new(Hold {
        liveness,
        tether,
        ours,
    });
    match hold.liveness.loss() {
        None => Ok(Session { hold }),
        Some(loss) => Err(loss),
    }
}

/// The TTL of a session, from the cluster: believing in a longer one would be unsafe.
async fn ttl_of(hub: &Arc<Hub>, session: SessionId) -> Result<Duration, AttachError> {
    let request = GetSessionRequest {
        session: session.get(),
        read: None,
    };
    let answer = unary::call(hub, move |channel| async move {
        SessionsClient::new(channel).get(request).await
    });
    match answer.await {
        Ok(reply) => {
            let session = reply.session.ok_or(AttachError::Call(misfit()))?;
            Ok(Duration::from_millis(session.ttl_ms))
        }
        Err(CallError::Refused(refusal))
            if matches!(refusal.reason, Reason::NotFound | Reason::SessionExpired) =>
        {
            Err(AttachError::Lost(Loss::SessionEnded { cause: None }))
        }
        Err(error) => Err(AttachError::Call(error)),
    }
}

fn misfit() -> CallError {
    CallError::Unknown {
        why: "the server's reply does not fit the request".into(),
    }
}
