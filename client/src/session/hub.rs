//! What all sessions of one client share: their table, what they have given up, and the watches that
//! tell of their leases.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ringfence_core::FencingToken;
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1::{self, client_frame};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::clock::Moment;
use crate::session::endings::{Endings, What};
use crate::session::grant::Grant;
use crate::session::handle::SessionHandle;
use crate::session::liveness::{Keeper, Liveness};
use crate::session::loss::Loss;
use crate::session::numbers::Numbers;
use crate::sync::lock;
use crate::transport::driver::Thread;
use crate::transport::follow::Follow;
use crate::transport::options::Options;
use crate::transport::{Served, Transport};
use crate::watch::observer::{News, Streams};

/// The most sessions that are being opened or resumed at a time.
const OPENINGS_MAX: u32 = 1 << 20;

/// See the module. It holds what stands below it, and nothing of that holds it: what a client
/// leaves is freed with its last task.
pub(crate) struct Hub {
    pub(crate) transport: Arc<Transport>,
    /// What this client has given up but the cluster may still grant it.
    pub(crate) endings: Arc<Endings>,
    /// The watches of leases that are followed.
    pub(crate) streams: Streams,
    /// Wakes the keep-alives: something is due earlier than they know.
    pub(crate) sooner: Notify,
    /// When they look next by themselves, in nanoseconds since boot.
    armed: AtomicU64,
    /// By session number and key, so that the attachments of one session stand together.
    sessions: Mutex<BTreeMap<(u64, u64), Arc<Liveness>>>,
    last_key: AtomicU64,
    shut: AtomicBool,
    /// A place for each session that is being opened or resumed.
    openings: Arc<Semaphore>,
    itself: Weak<Self>,
}

impl Hub {
    pub(crate) fn new(options: Options, thread: Thread, follow: Follow) -> Arc<Self> {
        Arc::new_cyclic(|itself: &Weak<Self>| {
            let served: Weak<dyn Served> = itself.clone();
            let transport = Arc::new(Transport::new(options, thread, follow, served));
            let hub = itself.clone();
            let streams = Streams::new(Arc::clone(&transport), move |news| {
                if let Some(hub) = hub.upgrade() {
                    hub.tell(news);
                }
            });
            Self {
                transport,
                endings: Arc::default(),
                streams,
                sooner: Notify::new(),
                armed: AtomicU64::new(u64::MAX),
                sessions: Mutex::default(),
                last_key: AtomicU64::new(0),
                shut: AtomicBool::new(false),
                openings: Arc::new(Semaphore::new(OPENINGS_MAX as usize)),
                itself: itself.clone(),
            }
        })
    }

    /// A session that was opened or resumed by a request sent at `sent`. It is not kept alive yet.
    pub(crate) fn session(
        &self,
        handle: SessionHandle,
        ttl: Duration,
        sent: Moment,
        numbers: Numbers,
    ) -> Liveness {
        let keeper: Weak<dyn Keeper> = self.itself.clone();
        let key = self.last_key.fetch_add(1, Ordering::Relaxed);
        let transport = Arc::clone(&self.transport);
        Liveness::new(transport, keeper, key, handle, ttl, sent, numbers)
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
        if let Some((look, due)) = session.tend(self.transport.now())
            && nanos(look.min(due)) < self.armed.load(Ordering::SeqCst)
        {
            self.sooner.notify_one();
        }
    }

    /// The keep-alives will look at `moment` again, or when a session says so; `None`: they are
    /// about to look at all sessions, and a session that comes meanwhile has to say so.
    pub(crate) fn arm(&self, moment: Option<Moment>) {
        let armed = moment.map_or(u64::MAX, nanos);
        self.armed.store(armed, Ordering::SeqCst);
    }

    /// The sessions that are kept alive.
    pub(crate) fn sessions(&self) -> Vec<Arc<Liveness>> {
        lock(&self.sessions).values().cloned().collect()
    }

    /// What was ours, and ended against our will, is believed in no longer.
    fn tell(&self, news: &News) {
        match news {
            News::Granted(_) => {}
            News::Ended(ended) => {
                let sessions = self.sessions();
                let theirs = sessions.iter().filter(|s| s.id() == ended.session);
                theirs.for_each(|session| session.told_ended(ended.token, ended.cause.clone()));
            }
            News::Present(present) => {
                let sessions = self.sessions();
                sessions
                    .iter()
                    .for_each(|session| session.told_present(present));
            }
        }
    }
}

impl Served for Hub {
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

impl Keeper for Hub {
    fn session_over(&self, session: &Arc<Liveness>, why: &Loss, grants: &[Arc<Grant>]) {
        self.endings.session_lost(session, why, grants);
        lock(&self.sessions).remove(&at(session));
    }

    fn grant_left(&self, session: &Arc<Liveness>, grant: &Grant) {
        self.endings.note_release(session, &grant.name, grant.token);
    }

    fn release(&self, session: &Arc<Liveness>, grant: &Grant) {
        let what = What::Grant(grant.token);
        let work = self.endings.begin(session, &grant.name, what);
        work.in_background(());
    }

    fn wake(&self) {
        self.sooner.notify_one();
    }
}

/// Where a session stands among those that are kept alive.
fn at(session: &Liveness) -> (u64, u64) {
    (session.id().get(), session.key())
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_boot().as_nanos()).unwrap_or(u64::MAX)
}
