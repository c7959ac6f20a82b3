//! What all parts of one client share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ringfence_core::{ClusterId, FencingToken};
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1::{self, client_frame, server_frame};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::calls::{Answer, Manner};
use crate::clock::Moment;
use crate::driver::{AbortOnDrop, Thread};
use crate::error::CallError;
use crate::follow::Follow;
use crate::grant::Grant;
use crate::link::Link;
use crate::liveness::Liveness;
use crate::loss::Loss;
use crate::observer::Streams;
use crate::options::Options;
use crate::sync::lock;
use crate::unsettled::Unsettled;

/// The most unary calls that go on to their answers although nobody waits for these any more.
const DESERTED_MAX: usize = 1_024;

/// The most sessions that are being opened or resumed at a time.
const OPENINGS_MAX: u32 = 1 << 20;

/// See the module. It does not keep the client's thread running; a
/// [`Tether`](crate::driver::Tether) does.
pub(crate) struct Hub {
    pub(crate) options: Options,
    pub(crate) thread: Thread,
    pub(crate) link: Link,
    pub(crate) follow: Mutex<Follow>,
    /// What this client has given up but the cluster may still grant it.
    pub(crate) unsettled: Unsettled,
    /// The watches of leases that are followed.
    pub(crate) streams: Streams,
    /// Wakes the keep-alives: something is due earlier than they know.
    pub(crate) sooner: Notify,
    /// When they look next by themselves, in nanoseconds since boot.
    armed: AtomicU64,
    /// By session number and key, so that the attachments of one session stand together.
    sessions: Mutex<BTreeMap<(u64, u64), Arc<Liveness>>>,
    cluster: Mutex<Option<ClusterId>>,
    cluster_time_ms: AtomicU64,
    last_key: AtomicU64,
    shut: AtomicBool,
    /// A place for each session that is being opened or resumed.
    openings: Arc<Semaphore>,
    /// Room for unary calls that go on without their callers.
    pub(crate) deserted: Semaphore,
}

impl Hub {
    pub(crate) fn new(options: Options, thread: Thread, follow: Follow) -> Self {
        Self {
            link: Link::new(Arc::clone(&options.clock)),
            options,
            thread,
            follow: Mutex::new(follow),
            unsettled: Unsettled::default(),
            streams: Streams::default(),
            sooner: Notify::new(),
            armed: AtomicU64::new(u64::MAX),
            sessions: Mutex::default(),
            cluster: Mutex::default(),
            cluster_time_ms: AtomicU64::new(0),
            last_key: AtomicU64::new(0),
            shut: AtomicBool::new(false),
            openings: Arc::new(Semaphore::new(OPENINGS_MAX as usize)),
            deserted: Semaphore::new(DESERTED_MAX),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.options.clock.now()
    }

    /// The deadline of a request that is sent now.
    pub(crate) fn deadline(&self) -> Moment {
        self.now() + self.options.request_timeout
    }

    /// Sends a request and waits for its answer. Every request of a session but its keep-alives
    /// passes here, so no API can send the end of a grant that is still believed in.
    pub(crate) async fn call(
        &self,
        body: client_frame::Body,
        manner: Manner,
        deadline: Moment,
    ) -> Result<Answer, CallError> {
        self.end_belief_before(&body);
        let reply = self.link.call(body, manner, deadline);
        match reply.await {
            Ok(result) => result,
            Err(_) => Err(CallError::Unknown {
                why: "the client has stopped".into(),
            }),
        }
    }

    /// Ends belief in what this request ends, in every attachment to its session that this client
    /// has: the next holder may be granted the lease as soon as the request has arrived.
    fn end_belief_before(&self, body: &client_frame::Body) {
        use client_frame::Body;
        let grant_ends = |session: &Option<v1::SessionHandle>, name: &str, token| {
            let planted = planted(Bug::BeliefOutlivesRelease) || planted(Bug::BeliefByHandleAlone);
            if let (Some(handle), Some(token), false) = (session, FencingToken::new(token), planted)
            {
                drop(self.end_belief(handle.session, name, token));
            }
        };
        match body {
            Body::Release(ask) if ask.close_session => self.end_beliefs(&ask.session),
            Body::Release(ask) => grant_ends(&ask.session, &ask.name, ask.token),
            Body::Transfer(ask) => grant_ends(&ask.session, &ask.name, ask.token),
            Body::Close(ask) => self.end_beliefs(&ask.session),
            Body::Open(_)
            | Body::KeepAlive(_)
            | Body::Acquire(_)
            | Body::Cancel(_)
            | Body::Get(_)
            | Body::Check(_) => {}
        }
    }

    /// Ends belief in a grant wherever this client believes in it; returns the grant if it did.
    pub(crate) fn end_belief(
        &self,
        session: u64,
        name: &str,
        token: FencingToken,
    ) -> Option<Arc<Grant>> {
        let attachments = self.attachments(session);
        let ended = attachments
            .iter()
            .filter_map(|attachment| attachment.end_belief(name, token));
        ended.fold(None, |first, grant| first.or(Some(grant)))
    }

    /// A grant that a hand-over has left in force is believed in again: no attachment takes it for
    /// one that it has given up.
    pub(crate) fn take_back(&self, session: u64, token: FencingToken) {
        for attachment in self.attachments(session) {
            attachment.take_back(token);
        }
    }

    /// Ends every attachment to a session that is about to be closed.
    fn end_beliefs(&self, session: &Option<v1::SessionHandle>) {
        let Some(handle) = session else { return };
        for attachment in self.attachments(handle.session) {
            attachment.lose(&Loss::Closed);
        }
    }

    /// The attachments to a session that are kept alive.
    fn attachments(&self, session: u64) -> Vec<Arc<Liveness>> {
        let sessions = lock(&self.sessions);
        let attachments = sessions.range((session, 0)..=(session, u64::MAX));
        attachments.map(|(_, found)| Arc::clone(found)).collect()
    }

    /// Sleeps until `moment`, on any executor: the client's own thread keeps the timer.
    pub(crate) async fn sleep_until(&self, moment: Moment) {
        let clock = Arc::clone(&self.options.clock);
        let asleep = self
            .thread
            .spawn(async move { clock.sleep_until(moment).await });
        // The thread ends only when nobody has a use for this client any more.
        drop((&mut AbortOnDrop(asleep).0).await);
    }

    pub(crate) fn follow(&self) -> MutexGuard<'_, Follow> {
        lock(&self.follow)
    }

    /// A key for one more session of this client.
    pub(crate) fn next_key(&self) -> u64 {
        self.last_key.fetch_add(1, Ordering::Relaxed)
    }

    /// No session is opened any more.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    /// A session is being opened or resumed until this is dropped; `None` once the client is shut
    /// down.
    pub(crate) async fn opening(&self) -> Option<OwnedSemaphorePermit> {
        if self.is_shut() {
            return None;
        }
        // An error cannot be: nothing closes this semaphore.
        let opening = Arc::clone(&self.openings).acquire_owned().await.ok();
        opening.filter(|_| !self.is_shut())
    }

    /// Waits until no session is being opened or resumed; for a client that is shut down.
    pub(crate) async fn opened(&self) {
        drop(self.openings.acquire_many(OPENINGS_MAX).await);
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::SeqCst)
    }

    /// Keeps a session alive from now on.
    pub(crate) fn register(&self, session: &Arc<Liveness>) {
        lock(&self.sessions).insert(at(session), Arc::clone(session));
        // Thousands that are opened one after the other do not each have all looked at.
        if let Some((look, due)) = session.tend(self.now())
            && nanos(look.min(due)) < self.armed.load(Ordering::SeqCst)
        {
            self.sooner.notify_one();
        }
    }

    /// The keep-alives will look at `moment` again, or when a session says so; `None`: they are
    /// about to look at all sessions, and whoever comes meanwhile has to say so.
    pub(crate) fn arm(&self, moment: Option<Moment>) {
        let armed = moment.map_or(u64::MAX, nanos);
        self.armed.store(armed, Ordering::SeqCst);
    }

    /// Keeps it alive no longer.
    pub(crate) fn unregister(&self, session: &Liveness) {
        lock(&self.sessions).remove(&at(session));
    }

    /// Lets go of everything that holds the hub.
    #[cfg(feature = "sim")]
    pub(crate) fn forget(&self) {
        let sessions = std::mem::take(&mut *lock(&self.sessions));
        drop(sessions);
        self.unsettled.forget();
    }

    /// The sessions that are kept alive.
    pub(crate) fn sessions(&self) -> Vec<Arc<Liveness>> {
        lock(&self.sessions).values().cloned().collect()
    }

    /// The shortest TTL among them.
    pub(crate) fn shortest_ttl(&self) -> Option<Duration> {
        lock(&self.sessions)
            .values()
            .map(|session| session.ttl())
            .min()
    }

    /// The newest cluster time seen, in milliseconds; 0 before the first greeting.
    pub(crate) fn cluster_time_ms(&self) -> u64 {
        self.cluster_time_ms.load(Ordering::Relaxed)
    }

    /// Takes notice of a cluster time that a reply carried.
    pub(crate) fn saw_cluster_time(&self, millis: u64) {
        self.cluster_time_ms.fetch_max(millis, Ordering::Relaxed);
    }

    /// Whether a member of `cluster` is one of ours: it is if this client knows no cluster yet.
    pub(crate) fn is_ours(&self, cluster: ClusterId) -> bool {
        lock(&self.cluster).is_none_or(|known| known == cluster)
    }

    /// Belongs to `cluster` from now on. Sessions of another one are lost: it knows none of them.
    pub(crate) fn belong_to(&self, cluster: ClusterId, time_ms: u64) {
        let before = lock(&self.cluster).replace(cluster);
        if before.is_some_and(|before| before != cluster) {
            self.cluster_time_ms.store(time_ms, Ordering::Relaxed);
            for session in self.sessions() {
                session.lose(&Loss::ClusterChanged);
            }
        }
        self.saw_cluster_time(time_ms);
    }
}

/// Where a session stands among those that are kept alive.
fn at(session: &Liveness) -> (u64, u64) {
    (session.id().get(), session.key())
}

/// The cluster time that a reply carries, if it does.
pub(crate) fn cluster_time_of(body: &server_frame::Body) -> Option<u64> {
    use server_frame::Body;
    match body {
        Body::Greeting(greeting) => Some(greeting.cluster_time_ms),
        Body::Open(reply) => Some(reply.cluster_time_ms),
        Body::KeepAlive(reply) => Some(reply.cluster_time_ms),
        Body::Close(reply) => Some(reply.cluster_time_ms),
        Body::Acquire(reply) => Some(reply.cluster_time_ms),
        Body::Cancel(reply) => Some(reply.cluster_time_ms),
        Body::Release(reply) => Some(reply.cluster_time_ms),
        Body::Transfer(reply) => Some(reply.cluster_time_ms),
        Body::Get(reply) => reply.at.as_ref().map(|at| at.cluster_time_ms),
        Body::Check(reply) => reply.at.as_ref().map(|at| at.cluster_time_ms),
        Body::Refusal(_) | Body::GoingAway(_) => None,
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_boot().as_nanos()).unwrap_or(u64::MAX)
}
