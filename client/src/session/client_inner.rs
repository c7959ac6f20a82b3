//! What all sessions of one client share: their table, the endings that are in progress, and the
//! watches that report on their leases.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ringfence_core::FencingToken;
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1::{self, client_frame};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::clock::Moment;
use crate::session::endings::{EndTarget, Endings};
use crate::session::grant::Grant;
use crate::session::handle::SessionHandle;
use crate::session::inner::{SessionCallbacks, SessionInner};
use crate::session::loss::Loss;
use crate::session::request_numbers::RequestNumbers;
use crate::sync::lock;
use crate::transport::driver::Thread;
use crate::transport::endpoint_selector::EndpointSelector;
use crate::transport::options::Options;
use crate::transport::{Transport, TransportCallbacks};
use crate::watch::observer::{SharedWatches, WatchUpdate};

/// The most sessions that are being opened or resumed at a time.
const OPENINGS_MAX: u32 = 1 << 20;

/// See the module. It holds what stands below it, and nothing of that holds it: what a client
/// leaves is freed with its last task.
pub(crate) struct ClientInner {
    pub(crate) transport: Arc<Transport>,
    /// What this client has given up but the cluster may still grant it.
    pub(crate) endings: Arc<Endings>,
    /// The watches of leases that are followed.
    pub(crate) watches: SharedWatches,
    /// Wakes the keep-alives: something is due earlier than they know.
    pub(crate) wake: Notify,
    /// When they look next by themselves, in nanoseconds since boot.
    armed: AtomicU64,
    /// By session number and key, so that the attachments of one session stand together.
    sessions: Mutex<BTreeMap<(u64, u64), Arc<SessionInner>>>,
    last_key: AtomicU64,
    shut_down: AtomicBool,
    /// A place for each session that is being opened or resumed.
    openings: Arc<Semaphore>,
    itself: Weak<Self>,
}

impl ClientInner {
    pub(crate) fn new(options: Options, thread: Thread, endpoints: EndpointSelector) -> Arc<Self> {
        Arc::new_cyclic(|itself: &Weak<Self>| {
            let callbacks: Weak<dyn TransportCallbacks> = itself.clone();
            let transport = Arc::new(Transport::new(options, thread, endpoints, callbacks));
            let inner = itself.clone();
            let watches = SharedWatches::new(Arc::clone(&transport), move |update| {
                if let Some(inner) = inner.upgrade() {
                    inner.on_watch_update(update);
                }
            });
            Self {
                transport,
                endings: Arc::default(),
                watches,
                wake: Notify::new(),
                armed: AtomicU64::new(u64::MAX),
                sessions: Mutex::default(),
                last_key: AtomicU64::new(0),
                shut_down: AtomicBool::new(false),
                openings: Arc::new(Semaphore::new(OPENINGS_MAX as usize)),
                itself: itself.clone(),
            }
        })
    }

    /// A session that was opened or resumed by a request sent at `sent`. It is not kept alive yet.
    pub(crate) fn new_session(
        &self,
        handle: SessionHandle,
        ttl: Duration,
        sent: Moment,
        numbers: RequestNumbers,
    ) -> SessionInner {
        let callbacks: Weak<dyn SessionCallbacks> = self.itself.clone();
        let key = self.last_key.fetch_add(1, Ordering::Relaxed);
        let transport = Arc::clone(&self.transport);
        SessionInner::new(transport, callbacks, key, handle, ttl, sent, numbers)
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
    fn attachments(&self, session: u64) -> Vec<Arc<SessionInner>> {
        let sessions = lock(&self.sessions);
        let attachments = sessions.range((session, 0)..=(session, u64::MAX));
        attachments.map(|(_, found)| Arc::clone(found)).collect()
    }

    /// No session is opened any more.
    pub(crate) fn shut_down(&self) {
        self.shut_down.store(true, Ordering::SeqCst);
    }

    /// A session is being opened or resumed until this is dropped; `None` once the client is shut
    /// down.
    pub(crate) async fn begin_opening(&self) -> Option<OwnedSemaphorePermit> {
        if self.is_shut_down() {
            return None;
        }
        // An error cannot be: nothing closes this semaphore.
        let permit = Arc::clone(&self.openings).acquire_owned().await.ok();
        // Asked again with the permit in hand: a shutdown sets the flag first and then waits for all
        // permits, so an opening that sees no flag here is waited for.
        permit.filter(|_| !self.is_shut_down())
    }

    /// Waits until no session is being opened or resumed; for a client that is shut down.
    pub(crate) async fn wait_until_none_opens(&self) {
        drop(self.openings.acquire_many(OPENINGS_MAX).await);
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::SeqCst)
    }

    /// Keeps a session alive from now on.
    pub(crate) fn register(&self, session: &Arc<SessionInner>) {
        // Insert first, compare second. The keep-alive loop stores `armed` before it sleeps, so
        // either it finds this session in the table, or this sees the moment that it sleeps until.
        lock(&self.sessions).insert(key_of(session), Arc::clone(session));
        // Thousands that are opened one after the other do not each have all looked at.
        if let Some((look, due)) = session.poll_deadlines(self.transport.now())
            && nanos(look.min(due)) < self.armed.load(Ordering::SeqCst)
        {
            self.wake.notify_one();
        }
    }

    /// The keep-alives will look at `moment` again, or when a session says so; `None`: they are
    /// about to look at all sessions, and a session that comes meanwhile has to say so.
    pub(crate) fn arm(&self, moment: Option<Moment>) {
        let armed = moment.map_or(u64::MAX, nanos);
        self.armed.store(armed, Ordering::SeqCst);
    }

    /// The sessions that are kept alive.
    pub(crate) fn sessions(&self) -> Vec<Arc<SessionInner>> {
        lock(&self.sessions).values().cloned().collect()
    }

    /// What was ours, and ended against our will, is believed in no longer.
    fn on_watch_update(&self, update: &WatchUpdate) {
        match update {
            WatchUpdate::Granted(_) => {}
            WatchUpdate::Ended(ended) => {
                let sessions = self.sessions();
                let theirs = sessions.iter().filter(|s| s.id() == ended.session);
                theirs.for_each(|session| session.on_watched_end(ended.token, ended.cause.clone()));
            }
            WatchUpdate::Present(present) => {
                let sessions = self.sessions();
                sessions
                    .iter()
                    .for_each(|session| session.on_watched_state(present));
            }
        }
    }
}

impl TransportCallbacks for ClientInner {
    fn is_idle(&self) -> bool {
        lock(&self.sessions).is_empty()
    }

    fn shortest_ttl(&self) -> Option<Duration> {
        lock(&self.sessions)
            .values()
            .map(|session| session.ttl())
            .min()
    }

    /// In every attachment to its session that this client has: the next holder may be granted the
    /// lease as soon as the request has arrived.
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

    fn cluster_changed(&self) {
        for session in self.sessions() {
            session.lose(&Loss::ClusterChanged);
        }
    }
}

impl SessionCallbacks for ClientInner {
    fn session_over(&self, session: &Arc<SessionInner>, why: &Loss, grants: &[Arc<Grant>]) {
        self.endings.session_lost(session, why, grants);
        lock(&self.sessions).remove(&key_of(session));
    }

    fn grant_left(&self, session: &Arc<SessionInner>, grant: &Grant) {
        self.endings.note_release(session, &grant.name, grant.token);
    }

    fn release(&self, session: &Arc<SessionInner>, grant: &Grant) {
        let target = EndTarget::Grant(grant.token);
        let work = self.endings.begin(session, &grant.name, target);
        work.in_background(());
    }

    fn wake(&self) {
        self.wake.notify_one();
    }
}

/// Where a session stands among those that are kept alive.
fn key_of(session: &SessionInner) -> (u64, u64) {
    (session.id().get(), session.key())
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_boot().as_nanos()).unwrap_or(u64::MAX)
}
