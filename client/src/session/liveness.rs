//! What this client knows of one of its sessions: how long it may believe in it, what it holds,
//! which request numbers are spent.

mod beliefs;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rand::Rng;
use ringfence_core::SessionId;
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1;
use tokio::sync::{Notify, watch};

use crate::clock::Moment;
use crate::session::beat::Beat;
use crate::session::grant::{Belief, Grant};
use crate::session::handle::SessionHandle;
use crate::session::loss::Loss;
use crate::session::losses::Losses;
use crate::session::numbers::{Number, Numbers, Use};
use crate::session::state::SessionState;
use crate::session::window::{Extended, Window};
use crate::sync::lock;
use crate::transport::Transport;
use crate::transport::chance;
use crate::transport::error::CallError;
use crate::transport::refusal::{Reason, Refusal};

/// The most losses that one keep-alive acknowledges for a session; further ones go with the next.
/// With those of other sessions it stays below what a node takes in one message.
const ACKNOWLEDGED_MAX: usize = 4_096;

/// The TTL, as the cluster tells it, of a session that lasts as long as a Pod.
const FOR_LIFE: Duration = Duration::from_millis(u64::MAX);

/// How long a session without a TTL waits for an answer until it asks again.
const FOR_LIFE_AGAIN: Duration = Duration::from_secs(1);

/// Who keeps a client's sessions alive, and hears at once of what happens to them.
pub(crate) trait Keeper: Send + Sync {
    /// The session is over for this client, and belief in these grants has just ended.
    fn session_over(&self, session: &Arc<Liveness>, why: &Loss, grants: &[Arc<Grant>]);

    /// The cluster may still grant this, and no holder here believes in it.
    fn grant_left(&self, session: &Arc<Liveness>, grant: &Grant);

    /// No holder here believes in this any more: it is released at the cluster.
    fn release(&self, session: &Arc<Liveness>, grant: &Grant);

    /// A keep-alive, or a look at the clock, is due earlier than was said.
    fn wake(&self);
}

/// One session, as long as this client has to do with it.
pub(crate) struct Liveness {
    pub(crate) transport: Arc<Transport>,
    /// It holds the session, so the session must not hold it.
    keeper: Weak<dyn Keeper>,
    /// Tells it from another of the same session in the same client.
    key: u64,
    handle: SessionHandle,
    ttl: Duration,
    /// What the times of its keep-alives are parts of: its TTL, or less if belief ends sooner.
    pace: Duration,
    state: watch::Sender<SessionState>,
    /// A request number was confirmed: those who wait for room look again.
    pub(crate) room: Notify,
    /// Whether this client has opened it, and closes it.
    ours: AtomicBool,
    /// Whether its handle is known outside of this attachment.
    shared: AtomicBool,
    /// Whether grants are being asked about.
    pub(crate) checking: AtomicBool,
    inner: Mutex<Inner>,
}

struct Inner {
    window: Window,
    lost: Option<Loss>,
    numbers: Numbers,
    /// The grants that are believed in, by token.
    grants: BTreeMap<u64, Arc<Grant>>,
    losses: Losses,
    renewal: Renewal,
    /// Signs of life that the application has promised.
    beats: Vec<Weak<Beat>>,
}

/// When the next keep-alive is due.
struct Renewal {
    due: Moment,
    /// Keep-alives sent since the last acknowledgement.
    unanswered: u32,
}

/// A session's part of a keep-alive.
pub(crate) struct Part {
    pub(crate) handle: v1::SessionHandle,
    pub(crate) acknowledged: Vec<u64>,
}

impl Liveness {
    /// A session that was opened or resumed by a request sent at `sent`.
    pub(crate) fn new(
        transport: Arc<Transport>,
        keeper: Weak<dyn Keeper>,
        key: u64,
        handle: SessionHandle,
        ttl: Duration,
        sent: Moment,
        numbers: Numbers,
    ) -> Self {
        let inner = Inner {
            window: Window::new(ttl, Duration::MAX, sent),
            lost: None,
            numbers,
            grants: BTreeMap::new(),
            losses: Losses::default(),
            renewal: Renewal {
                due: sent + interval(ttl),
                unanswered: 0,
            },
            beats: Vec::new(),
        };
        let state = watch::Sender::new(SessionState::Live);
        Self {
            transport,
            keeper,
            key,
            handle,
            ttl,
            pace: ttl,
            state,
            room: Notify::new(),
            ours: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            checking: AtomicBool::new(false),
            inner: Mutex::new(inner),
        }
    }

    /// The same, believed in for at most `patience` after a keep-alive that was acknowledged, and
    /// kept alive the more often. Nothing else has happened to it since `sent`.
    pub(crate) fn with_patience(mut self, patience: Duration, sent: Moment) -> Self {
        self.pace = self.ttl.min(patience);
        let mut inner = lock(&self.inner);
        inner.window = Window::new(self.ttl, patience, sent);
        inner.renewal.due = sent + interval(self.pace);
        drop(inner);
        self
    }

    /// This client has opened it, and closes it.
    pub(crate) fn own(&self) {
        self.ours.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.ours.load(Ordering::Relaxed)
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    pub(crate) fn id(&self) -> SessionId {
        self.handle.session
    }

    pub(crate) fn handle(&self) -> SessionHandle {
        self.handle
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether it lasts as long as a Pod: then no task sends keep-alives for it unasked.
    pub(crate) fn is_for_life(&self) -> bool {
        self.ttl == FOR_LIFE
    }

    pub(crate) fn state(&self) -> watch::Receiver<SessionState> {
        self.state.subscribe()
    }

    pub(crate) fn valid_until(&self) -> Moment {
        lock(&self.inner).window.valid_until()
    }

    /// When belief in a grant ends, or would have ended had it not been lost before.
    pub(crate) fn valid_until_of(&self, grant: &Grant) -> Moment {
        match grant.belief() {
            Belief::Over { until, .. } if !planted(Bug::LostWindowMoves) => until,
            _ => self.valid_until(),
        }
    }

    /// Why the session is over, if it is. Asks the clock: a window that has passed is lost here and
    /// now, whichever caller looks first.
    pub(crate) fn loss(self: &Arc<Self>) -> Option<Loss> {
        let now = self.transport.now();
        let why = {
            let inner = lock(&self.inner);
            if inner.lost.is_some() {
                return inner.lost.clone();
            }
            if !inner.window.has_passed(now) {
                return None;
            }
            inner.why_passed(now)
        };
        self.lose(&why);
        lock(&self.inner).lost.clone()
    }

    /// Why a grant is not held, if it is not.
    pub(crate) fn loss_of(self: &Arc<Self>, grant: &Grant) -> Option<Loss> {
        if let Belief::Over { loss, .. } = grant.belief() {
            return Some(loss);
        }
        self.loss()
    }

    /// Ends the session for this client, for ever, and belief in all it holds. Says whether it was
    /// not over before.
    pub(crate) fn lose(self: &Arc<Self>, why: &Loss) -> bool {
        self.lose_all(why).is_some()
    }

    /// The same, and returns what was believed in; `None` if the session was over before.
    pub(crate) fn lose_all(self: &Arc<Self>, why: &Loss) -> Option<Vec<Arc<Grant>>> {
        let (grants, until) = {
            let mut inner = lock(&self.inner);
            if inner.lost.is_some() {
                return None;
            }
            inner.lost = Some(why.clone());
            let (session, leases) = (self.id(), inner.grants.len());
            if why.is_own_doing() {
                tracing::debug!(%session, leases, %why, "session ended");
            } else {
                tracing::warn!(%session, leases, %why, "session lost");
            }
            self.state
                .send_replace(SessionState::Lost { why: why.clone() });
            let grants = std::mem::take(&mut inner.grants);
            (grants, inner.window.valid_until())
        };
        let grants = grants.into_values().filter(|grant| grant.end(why, until));
        let grants: Vec<_> = grants.collect();
        if let Some(keeper) = self.keeper.upgrade() {
            keeper.session_over(self, why, &grants);
        }
        self.room.notify_waiters();
        Some(grants)
    }

    /// A keep-alive was acknowledged that was first sent at `sent`, and what it reported of losses
    /// is known here. Nothing else may stretch belief: no other answer tells of losses.
    pub(crate) fn acknowledge(self: &Arc<Self>, sent: Moment) {
        let now = self.transport.now();
        let mut inner = lock(&self.inner);
        let stuck = inner.is_stuck(sent) && !planted(Bug::StuckWorkRenewed);
        if inner.lost.is_some() || stuck {
            return;
        }
        match inner.window.extend(sent, now) {
            Extended::TooLate => {
                let why = inner.why_passed(now);
                drop(inner);
                self.lose(&why);
            }
            Extended::NoChange => {}
            Extended::Later => {
                // What is due now was asked for since, and is no matter of this answer.
                if inner.renewal.due > now {
                    inner.renew_at(sent + interval(self.pace));
                }
                if inner.losses.to_acknowledge().next().is_some() {
                    inner.renewal.due = now;
                }
                self.tell(&inner, now);
            }
        }
    }

    /// Looks at the clock: warns, or ends the session. Returns when to look again, and when the
    /// next keep-alive is due; `None` once it is over.
    pub(crate) fn tend(self: &Arc<Self>, now: Moment) -> Option<(Moment, Moment)> {
        let inner = lock(&self.inner);
        if inner.lost.is_some() {
            return None;
        }
        let leave = inner.window.leave_at();
        if now >= leave {
            let why = inner.why_passed(now);
            drop(inner);
            self.lose(&why);
            return None;
        }
        self.tell(&inner, now);
        let jeopardy = inner.window.jeopardy_at();
        let look = if now < jeopardy { jeopardy } else { leave };
        Some((look, inner.renewal.due))
    }

    /// Its part of the keep-alive that is about to be sent, if it should have one. Sessions that
    /// are due soon join in, so that one message serves all.
    pub(crate) fn join_keep_alive(&self, now: Moment) -> Option<Part> {
        let mut inner = lock(&self.inner);
        let stuck = inner.is_stuck(now) && !planted(Bug::StuckWorkRenewed);
        let renewal = &mut inner.renewal;
        let soon = if renewal.unanswered == 0 {
            self.pace / 10
        } else {
            Duration::ZERO
        };
        if renewal.due > now + soon {
            return None;
        }
        if stuck {
            renewal.due = now + self.again();
            return None;
        }
        // Again after a twentieth of the TTL, then after twice as long each time.
        let pause = self.again().saturating_mul(1 << renewal.unanswered.min(2));
        renewal.due = now + pause;
        renewal.unanswered = renewal.unanswered.saturating_add(1);
        let acknowledged = inner.losses.to_acknowledge();
        let acknowledged = acknowledged.take(ACKNOWLEDGED_MAX).collect();
        Some(Part {
            handle: self.handle.to_wire(),
            acknowledged,
        })
    }

    /// How long after a keep-alive without an answer the next one is due.
    fn again(&self) -> Duration {
        let again = self.pace / 20;
        if self.is_for_life() && !planted(Bug::ForLifeAsksOnce) {
            // It asks because it has to know, or to tell, something.
            return again.min(FOR_LIFE_AGAIN);
        }
        again.max(Duration::from_millis(1))
    }

    /// The keep-alives look at once whether one is due.
    pub(crate) fn wake(&self) {
        if let Some(keeper) = self.keeper.upgrade() {
            keeper.wake();
        }
    }

    /// A keep-alive is due now: there is a new stream.
    pub(crate) fn hurry(&self, now: Moment) {
        lock(&self.inner).renewal = Renewal {
            due: now,
            unanswered: 0,
        };
    }

    /// The cluster knows now that these losses were noticed.
    pub(crate) fn acknowledged(&self, tokens: &[u64]) {
        lock(&self.inner).losses.acknowledged(tokens);
    }

    /// Renews only while this sign of life comes in time.
    pub(crate) fn promise(&self, beat: &Arc<Beat>) {
        let mut inner = lock(&self.inner);
        inner.beats.retain(|beat| beat.strong_count() > 0);
        inner.beats.push(Arc::downgrade(beat));
    }

    /// Takes what a refusal says about the session itself.
    pub(crate) fn heed(self: &Arc<Self>, refusal: &Refusal) {
        match refusal.reason {
            Reason::SessionExpired => drop(self.lose(&Loss::SessionEnded { cause: None })),
            Reason::WrongSecret => drop(self.lose(&Loss::WrongSecret)),
            Reason::StaleRequest => {
                let lowest = refusal
                    .metadata
                    .get("lowest")
                    .and_then(|text| text.parse().ok());
                lock(&self.inner).numbers.skip_to(lowest.unwrap_or(0));
            }
            _ => {}
        }
    }

    /// The next request number; waits while too many are unconfirmed.
    pub(crate) async fn number(&self, what: Use, deadline: Moment) -> Result<Number, CallError> {
        loop {
            let room = self.room.notified();
            if let Some(number) = lock(&self.inner).numbers.take(what) {
                return Ok(number);
            }
            tokio::select! {
                () = room => {}
                () = self.transport.sleep_until(deadline) => {
                    let why = "too many requests of this session are unanswered; its oldest one \
                               holds the others up, use another session beside long waits";
                    return Err(CallError::Unavailable { why: why.into() });
                }
            }
        }
    }

    /// The request with this number is answered for good.
    pub(crate) fn confirm(&self, number: u64) {
        lock(&self.inner).numbers.confirm(number);
        self.room.notify_waiters();
    }

    /// Tells watchers how the session stands, if that has changed.
    fn tell(&self, inner: &Inner, now: Moment) {
        let state = if now < inner.window.jeopardy_at() {
            SessionState::Live
        } else {
            SessionState::Jeopardy {
                valid_until: inner.window.valid_until(),
            }
        };
        self.state.send_if_modified(|told| {
            let changed = *told != state;
            if changed {
                let session = self.id();
                match (&told, &state) {
                    (SessionState::Live, SessionState::Jeopardy { .. }) => {
                        let left = inner.window.valid_until().saturating_since(now);
                        tracing::warn!(%session, ?left, "no keep-alive is acknowledged: the session is in jeopardy");
                    }
                    (SessionState::Jeopardy { .. }, SessionState::Live) => {
                        tracing::info!(%session, "the session is out of jeopardy");
                    }
                    _ => {}
                }
                *told = state;
            }
            changed
        });
    }
}

impl Inner {
    /// The next keep-alive, which is due now, acknowledges that this grant was lost.
    fn noticed(&mut self, token: u64, now: Moment) {
        if self.losses.acknowledge(token) {
            self.renew_at(now);
        }
    }

    fn renew_at(&mut self, due: Moment) {
        self.renewal = Renewal { due, unanswered: 0 };
    }

    /// Whether a promised sign of life was overdue at that moment.
    fn is_stuck(&self, at: Moment) -> bool {
        let mut beats = self.beats.iter().filter_map(Weak::upgrade);
        beats.any(|beat| beat.is_overdue(at))
    }

    /// Why its window could pass.
    fn why_passed(&self, now: Moment) -> Loss {
        if self.is_stuck(now) {
            Loss::Stuck
        } else {
            Loss::WindowPassed
        }
    }
}

/// The time between keep-alives: a third of the TTL less up to a twentieth of it, so that clients
/// that started together do not stay together.
fn interval(ttl: Duration) -> Duration {
    ttl / 3 - (ttl / 20).mul_f64(chance::rng().random_range(0.0..1.0))
}
