//! Opening a session, and resuming one from its handle.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::Rng;
use ringfence_core::{Identity, LeaseName, Pod, Secret, SessionId};
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{
    self, AcquireRequest, GetSessionRequest, KeepAliveRequest, OpenRequest, client_frame,
    server_frame,
};

use ringfence_proto::wire::pod_to_wire;

use crate::acquire::{self, AcquireError, Terms};
use crate::calls::{Answer, Manner};
use crate::client::Client;
use crate::driver::{self, Tether};
use crate::error::{AttachError, CallError, OpenError};
use crate::handle::SessionHandle;
use crate::hub::Hub;
use crate::lease::HeldLease;
use crate::liveness::Liveness;
use crate::loss::Loss;
use crate::numbers::{Number, Numbers};
use crate::refusal::Reason;
use crate::session::{Hold, Session, SessionOptions};
use crate::{chance, clock, session, unary};

impl Client {
    /// Opens a session and keeps it alive until it is closed, left, or lost.
    ///
    /// # Errors
    /// [`OpenError`] if the options are refused or the cluster does not answer in time.
    pub async fn open_session(&self, options: SessionOptions) -> Result<Session, OpenError> {
        let life = Life::Ttl {
            ttl: options.ttl,
            patience: Duration::MAX,
        };
        open(&self.hub, &self.tether, options.identity, life).await
    }

    /// Resumes a session from its handle and keeps it alive. `ttl` is what the session was opened
    /// with; the cluster is asked, and the smaller one counts. Pass [`Duration::MAX`] to take the
    /// cluster's word.
    ///
    /// One process at a time should send requests for a session; others may keep it alive.
    /// Dropping a resumed session neither closes it nor releases what it holds.
    ///
    /// # Errors
    /// [`AttachError`] if the session has ended, or the secret is wrong.
    pub async fn attach(
        &self,
        handle: SessionHandle,
        ttl: Duration,
    ) -> Result<Session, AttachError> {
        attach(&self.hub, &self.tether, handle, ttl).await
    }
}

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
    let Some(under_way) = hub.opening().await else {
        return Err(OpenError::ShutDown);
    };
    let identity = Identity::parse(&identity).map_err(OpenError::InvalidIdentity)?;
    let (ttl, patience, pod) = match life {
        Life::Ttl { ttl, patience } => (Some(ttl), patience, None),
        Life::Pod(pod) => (None, Duration::MAX, Some(pod)),
    };
    let secret = Secret::new(chance::rng().random());
    let (shared, tether) = (Arc::clone(hub), Arc::clone(tether));
    let opening = hub.thread.spawn(async move {
        let hub = shared;
        let request = OpenRequest {
            secret: Bytes::copy_from_slice(secret.as_bytes()),
            ttl_ms: ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            identity: identity.as_str().to_owned(),
            pod: pod.as_ref().map(pod_to_wire),
            ..OpenRequest::default()
        };
        let answer = ask(&hub, request, client_frame::Body::Open);
        let answer = answer.await.map_err(OpenError::Call)?;
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
        let kept = keep(liveness, tether, true).map_err(|_| OpenError::TooLate);
        let session = unless_shut(kept?).await.ok_or(OpenError::ShutDown)?;
        drop(under_way);
        Ok(session)
    });
    // Dropping this future drops the session that the task returns, and so closes it.
    match opening.await {
        Ok(opened) => opened,
        Err(_) => Err(OpenError::Call(CallError::Unknown {
            why: "the client has stopped".into(),
        })),
    }
}

/// A session that was opened, and what came of the acquire that was sent with it.
pub(crate) type FirstTry = (Session, Result<HeldLease, AcquireError>);

/// Opens a session and acquires a lease with it in one request, which does not wait. If nobody waits
/// for it any more when the answer comes, both are given back.
pub(crate) async fn open_and_acquire(
    hub: &Arc<Hub>,
    tether: &Arc<Tether>,
    options: SessionOptions,
    name: LeaseName,
    terms: Terms,
) -> Result<FirstTry, AcquireError> {
    let fail = AcquireError::Open;
    let Some(under_way) = hub.opening().await else {
        return Err(fail(OpenError::ShutDown));
    };
    let identity = Identity::parse(&options.identity);
    let identity = identity.map_err(|fault| fail(OpenError::InvalidIdentity(fault)))?;
    // What this client had of it before is settled first: new work has a new token.
    let settled = hub.unsettled.settle(&name, hub.deadline()).await;
    settled.map_err(AcquireError::Call)?;
    let secret = Secret::new(chance::rng().random());
    let (shared, tether) = (Arc::clone(hub), Arc::clone(tether));
    let opening = hub.thread.spawn(async move {
        let (hub, _under_way) = (shared, under_way);
        let request = OpenRequest {
            secret: Bytes::copy_from_slice(secret.as_bytes()),
            ttl_ms: Some(u64::try_from(options.ttl.as_millis()).unwrap_or(u64::MAX)),
            identity: identity.as_str().to_owned(),
            ..OpenRequest::default()
        };
        let wanted = acquire::request(None, &name, FIRST, &terms);
        let asked = hub.now();
        let answer = ask(&hub, request, |open| {
            let open = Some(open);
            client_frame::Body::Acquire(AcquireRequest {
                open,
                ..wanted.clone()
            })
        });
        let numbers = Numbers::from(FIRST.number + 1);
        let keep = async |session: u64, ttl_ms: u64, sent| {
            let session = SessionId::new(session).ok_or(OpenError::Call(misfit()))?;
            let handle = SessionHandle { session, secret };
            let ttl = Duration::from_millis(ttl_ms);
            let liveness = Liveness::new(Arc::clone(&hub), handle, ttl, sent, numbers);
            let kept = keep(Arc::new(liveness), tether, true).map_err(|_| OpenError::TooLate);
            unless_shut(kept?).await.ok_or(OpenError::ShutDown)
        };
        match answer.await {
            Ok(Answer {
                body: server_frame::Body::Acquire(reply),
                sent,
            }) => {
                let opened = reply.opened.ok_or(fail(OpenError::Call(misfit())))?;
                let session = keep(opened.session, opened.ttl_ms, sent)
                    .await
                    .map_err(fail)?;
                let lease = acquire::admitted(&session, &name, reply.grant);
                Ok((session, lease))
            }
            Ok(_) => Err(fail(OpenError::Call(misfit()))),
            Err(CallError::Refused(refusal)) => {
                let detail = |key: &str| refusal.metadata.get(key)?.parse().ok();
                let (Some(session), Some(ttl_ms)) = (detail("session"), detail("ttl_ms")) else {
                    return Err(fail(OpenError::Call(CallError::Refused(refusal))));
                };
                // When the try was sent that was answered is not told: not before this.
                let session = keep(session, ttl_ms, asked).await.map_err(fail)?;
                let why = acquire::refused(&session.hold.liveness, refusal);
                Ok((session, Err(why)))
            }
            Err(error) => Err(fail(OpenError::Call(error))),
        }
    });
    // Dropping this future drops what the task returns, and so gives it back.
    match opening.await {
        Ok(opened) => opened,
        Err(_) => Err(AcquireError::Call(CallError::Unknown {
            why: "the client has stopped".into(),
        })),
    }
}

/// The number of an acquire that opens its session.
const FIRST: Number = Number {
    number: 1,
    lowest: 1,
};

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
async fn ask(
    hub: &Arc<Hub>,
    mut request: OpenRequest,
    body: impl Fn(OpenRequest) -> client_frame::Body,
) -> Result<Answer, CallError> {
    let mut tries = TRIES;
    loop {
        let id: [u8; 16] = chance::rng().random();
        request.id = Bytes::copy_from_slice(&id);
        request.seen_cluster_time_ms = Some(hub.cluster_time_ms());
        let body = body(request.clone());
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
    let Some(_under_way) = hub.opening().await else {
        return Err(AttachError::ShutDown);
    };
    let ttl = ttl.min(ttl_of(hub, handle.session).await?);
    let request = KeepAliveRequest {
        sessions: vec![handle.to_wire()],
        ..KeepAliveRequest::default()
    };
    let body = client_frame::Body::KeepAlive(request);
    let (shared, deadline) = (Arc::clone(hub), hub.deadline());
    let renewing = async move { shared.call(body, Manner::Prompt, deadline).await };
    let answer = driver::on_thread(&hub.thread, renewing)
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
            v1::Reason::WrongSecret => Loss::WrongSecret,
            _ => Loss::of_session(ended.cause.clone()),
        };
        return Err(AttachError::Lost(loss));
    }
    // Above all numbers that were spent before, in this process or another. If the wall clock was
    // set back since, the cluster's refusal tells the right one.
    let numbers = Numbers::from(clock::wall_micros().max(1));
    let liveness = Arc::new(Liveness::new(Arc::clone(hub), handle, ttl, sent, numbers));
    liveness.share();
    let kept = keep(liveness, Arc::clone(tether), false).map_err(AttachError::Lost);
    unless_shut(kept?).await.ok_or(AttachError::ShutDown)
}

/// Keeps the session alive from now on, unless its window has passed already.
fn keep(liveness: Arc<Liveness>, tether: Arc<Tether>, ours: bool) -> Result<Session, Loss> {
    let hub = Arc::clone(&liveness.hub);
    if ours {
        liveness.own();
    }
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

/// The session, unless the client was shut down while it was opened or resumed: whoever shuts it down
/// may have looked at its sessions before this one was among them.
async fn unless_shut(session: Session) -> Option<Session> {
    let Hold { liveness, ours, .. } = &*session.hold;
    if !liveness.hub.is_shut() {
        return Some(session);
    }
    if *ours && liveness.lose(&Loss::Closed) {
        let closed = session::close(liveness, liveness.hub.deadline()).await;
        if let Err(error) = closed {
            tracing::debug!(session = %liveness.id(), %error, "not closed; it will expire");
        }
    }
    None
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
