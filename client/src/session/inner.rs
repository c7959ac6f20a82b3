//! What this client knows of one of its sessions: how long it may believe in it, what it holds,
//! which request numbers are spent.

mod beliefs;
mod renewal;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ringfence_core::SessionId;
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1;
use tokio::sync::{Notify, watch};

use crate::clock::Moment;
use crate::session::grant::{Belief, Grant};
use crate::session::handle::SessionHandle;
use crate::session::heartbeat_timer::HeartbeatTimer;
use crate::session::loss::Loss;
use crate::session::losses::Losses;
use crate::session::request_numbers::{RequestKind, RequestNumber, RequestNumbers};
use crate::session::state::SessionState;
use crate::session::ttl::FOR_LIFE;
use crate::session::window::{Extended, Window};
use crate::sync::lock;
use crate::transport::Transport;
use crate::transport::error::CallError;
use crate::transport::refusal::{Reason, Refusal};
use renewal::{Renewal, interval};

/// The most losses that one keep-alive acknowledges for a session; further ones go with the next.
/// With those of other sessions it stays below what a node takes in one message.
const ACKNOWLEDGED_MAX: usize = 4_096;

/// How long a session without a TTL waits for an answer until it asks again.
const FOR_LIFE_AGAIN: Duration = Duration::from_secs(1);

/// Who keeps a client's sessions alive, and hears at once of what happens to them.
pub(crate) trait SessionCallbacks: Send + Sync {
    /// The session is over for this client, and belief in these grants has just ended.
    fn session_over(&self, session: &Arc<SessionInner>, why: &Loss, grants: &[Arc<Grant>]);

    /// The cluster may still grant this, and no holder here believes in it.
    fn grant_left(&self, session: &Arc<SessionInner>, grant: &Grant);

    /// No holder here believes in this any more: it is released at the cluster.
    fn release(&self, session: &Arc<SessionInner>, grant: &Grant);

    /// A keep-alive, or a look at the clock, is due earlier than was said.
    fn wake(&self);
}

/// One session, as long as this client has to do with it.
pub(crate) struct SessionInner {
    pub(crate) transport: Arc<Transport>,
    /// It holds the session, so the session must not hold it.
    callbacks: Weak<dyn SessionCallbacks>,
    /// Tells it from another of the same session in the same client.
    key: u64,
    handle: SessionHandle,
    ttl: Duration,
    /// What the times of its keep-alives are parts of: its TTL, or less if belief ends sooner.
    renew_base: Duration,
    state: watch::Sender<SessionState>,
    /// A request number was confirmed: those who wait for room look again.
    pub(crate) number_freed: Notify,
    /// Whether this client has opened it, and closes it.
    ours: AtomicBool,
    /// Whether its handle is known outside of this attachment.
    shared: AtomicBool,
    /// Whether grants are being asked about.
    pub(crate) checking: AtomicBool,
    locked: Mutex<Locked>,
}

struct Locked {
    window: Window,
    lost: Option<Loss>,
    numbers: RequestNumbers,
    /// The grants that are believed in, by token.
    grants: BTreeMap<u64, Arc<Grant>>,
    losses: Losses,
    renewal: Renewal,
    /// Signs of life that the application has promised.
    heartbeats: Vec<Weak<HeartbeatTimer>>,
}

/// A session's part of a keep-alive.
pub(crate) struct KeepAlivePart {
    pub(crate) handle: v1::SessionHandle,
    pub(crate) acknowledged: Vec<u64>,
}

impl SessionInner {
    /// A session that was opened or resumed by a request sent at `sent`.
    pub(crate) fn new(
        transport: Arc<Transport>,
        callbacks: Weak<dyn SessionCallbacks>,
        key: u64,
        handle: SessionHandle,
        ttl: Duration,
        sent: Moment,
        numbers: RequestNumbers,
    ) -> Self {
        let locked = Locked {
            window: Window::new(ttl, Duration::MAX, sent),
            lost: None,
            numbers,
            grants: BTreeMap::new(),
            losses: Losses::default(),
            renewal: Renewal {
                due: sent + interval(ttl),
                unanswered: 0,
            },
            heartbeats: Vec::new(),
        };
        let state = watch::Sender::new(SessionState::Live);
        Self {
            transport,
            callbacks,
            key,
            handle,
            ttl,
            renew_base: ttl,
            state,
            number_freed: Notify::new(),
            ours: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            checking: AtomicBool::new(false),
            locked: Mutex::new(locked),
        }
    }

    /// The same, believed in for at most `renew_deadline` after a keep-alive that was acknowledged, and
    /// kept alive the more often. Nothing else has happened to it since `sent`.
    pub(crate) fn with_renew_deadline(mut self, renew_deadline: Duration, sent: Moment) -> Self {
        self.renew_base = self.ttl.min(renew_deadline);
        let mut locked = lock(&self.locked);
        locked.window = Window::new(self.ttl, renew_deadline, sent);
        locked.renewal.due = sent + interval(self.renew_base);
        drop(locked);
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
        lock(&self.locked).window.valid_until()
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
            let locked = lock(&self.locked);
            if locked.lost.is_some() {
                return locked.lost.clone();
            }
            if !locked.window.has_passed(now) {
                return None;
            }
            locked.why_passed(now)
        };
        // Another thread may have lost the session for another cause since the lock was released.
        // The first cause is the one that everyone sees, so it is read back instead of returning
        // `why`.
        self.lose(&why);
        lock(&self.locked).lost.clone()
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
            let mut locked = lock(&self.locked);
            if locked.lost.is_some() {
                return None;
            }
            // From here on `admit` refuses grants, under the same lock: a grant whose answer
            // arrives now cannot slip in behind the list that is taken below.
            locked.lost = Some(why.clone());
            let (session, leases) = (self.id(), locked.grants.len());
            if why.is_own_doing() {
                tracing::debug!(%session, leases, %why, "session ended");
            } else {
                tracing::warn!(%session, leases, %why, "session lost");
            }
            self.state
                .send_replace(SessionState::Lost { why: why.clone() });
            let grants = std::mem::take(&mut locked.grants);
            (grants, locked.window.valid_until())
        };
        // Outside the lock: ending a grant wakes tasks that may ask this session for its loss at
        // once. Grants that ended a moment ago for their own cause are filtered out, and are not
        // released twice.
        let grants = grants.into_values().filter(|grant| grant.end(why, until));
        let grants: Vec<_> = grants.collect();
        if let Some(callbacks) = self.callbacks.upgrade() {
            callbacks.session_over(self, why, &grants);
        }
        self.number_freed.notify_waiters();
        Some(grants)
    }

    /// A keep-alive was acknowledged that was first sent at `sent`, and what it reported of losses
    /// is known here. Nothing else may stretch belief: no other answer tells of losses.
    pub(crate) fn acknowledge(self: &Arc<Self>, sent: Moment) {
        let now = self.transport.now();
        let mut locked = lock(&self.locked);
        // Judged at the send: work that got stuck only afterwards keeps this renewal, and the next
        // keep-alive is not sent.
        let stuck = locked.is_stuck(sent) && !planted(Bug::StuckWorkRenewed);
        if locked.lost.is_some() || stuck {
            return;
        }
        match locked.window.extend(sent, now) {
            // The cluster has renewed the session, but tasks may have asked the clock after the
            // window's end and received a no. Loss is final, so the late reply changes nothing.
            Extended::TooLate => {
                let why = locked.why_passed(now);
                drop(locked);
                self.lose(&why);
            }
            Extended::NoChange => {}
            Extended::Later => {
                // What is due now was asked for since, and is no matter of this answer.
                if locked.renewal.due > now {
                    locked.renew_at(sent + interval(self.renew_base));
                }
                // A loss was noticed after that keep-alive was built. The next holder waits for its
                // acknowledgement, so it does not wait for the next third of the TTL.
                if locked.losses.to_acknowledge().next().is_some() {
                    locked.renewal.due = now;
                }
                self.publish_state(&locked, now);
            }
        }
    }

    /// Looks at the clock: warns, or ends the session. Returns when to look again, and when the
    /// next keep-alive is due; `None` once it is over.
    pub(crate) fn poll_deadlines(self: &Arc<Self>, now: Moment) -> Option<(Moment, Moment)> {
        let locked = lock(&self.locked);
        if locked.lost.is_some() {
            return None;
        }
        let leave = locked.window.leave_at();
        // Up to 20 ms before the window's end, so that every task that waits for the loss has been
        // woken when the window ends.
        if now >= leave {
            let why = locked.why_passed(now);
            drop(locked);
            self.lose(&why);
            return None;
        }
        self.publish_state(&locked, now);
        let jeopardy = locked.window.jeopardy_at();
        let look = if now < jeopardy { jeopardy } else { leave };
        Some((look, locked.renewal.due))
    }

    /// Its part of the keep-alive that is about to be sent, if it should have one. Sessions that
    /// are due soon join in, so that one message serves all.
    pub(crate) fn join_keep_alive(&self, now: Moment) -> Option<KeepAlivePart> {
        let mut locked = lock(&self.locked);
        let stuck = locked.is_stuck(now) && !planted(Bug::StuckWorkRenewed);
        let renewal = &mut locked.renewal;
        let soon = if renewal.unanswered == 0 {
            self.renew_base / 10
        } else {
            Duration::ZERO
        };
        if renewal.due > now + soon {
            return None;
        }
        // No keep-alive without a heartbeat. The due time moves all the same, or the keep-alive
        // loop would find this session due in every turn and spin.
        if stuck {
            renewal.due = now + self.retry_delay();
            return None;
        }
        // Again after a twentieth of the TTL, then after twice as long each time.
        let pause = self
            .retry_delay()
            .saturating_mul(1 << renewal.unanswered.min(2));
        renewal.due = now + pause;
        renewal.unanswered = renewal.unanswered.saturating_add(1);
        let acknowledged = locked.losses.to_acknowledge();
        let acknowledged = acknowledged.take(ACKNOWLEDGED_MAX).collect();
        Some(KeepAlivePart {
            handle: self.handle.to_wire(),
            acknowledged,
        })
    }

    /// How long after a keep-alive without an answer the next one is due.
    fn retry_delay(&self) -> Duration {
        let retry_delay = self.renew_base / 20;
        if self.is_for_life() && !planted(Bug::ForLifeAsksOnce) {
            // It asks because it has to know, or to tell, something.
            return retry_delay.min(FOR_LIFE_AGAIN);
        }
        retry_delay.max(Duration::from_millis(1))
    }

    /// The keep-alives look at once whether one is due.
    pub(crate) fn wake(&self) {
        if let Some(callbacks) = self.callbacks.upgrade() {
            callbacks.wake();
        }
    }

    /// A keep-alive is due now: there is a new stream.
    pub(crate) fn renew_now(&self, now: Moment) {
        lock(&self.locked).renewal = Renewal {
            due: now,
            unanswered: 0,
        };
    }

    /// A keep-alive is due: the cluster has more to tell.
    pub(crate) fn ask_soon(&self) {
        lock(&self.locked).renewal.soon(self.transport.now());
    }

    /// The cluster knows now that these losses were noticed.
    pub(crate) fn acknowledged(&self, tokens: &[u64]) {
        lock(&self.locked).losses.acknowledged(tokens);
    }

    /// Renews only while this sign of life comes in time.
    pub(crate) fn require_heartbeat(&self, beat: &Arc<HeartbeatTimer>) {
        let mut locked = lock(&self.locked);
        locked.heartbeats.retain(|beat| beat.strong_count() > 0);
        locked.heartbeats.push(Arc::downgrade(beat));
    }

    /// Takes what a refusal says about the session itself.
    pub(crate) fn apply_refusal(self: &Arc<Self>, refusal: &Refusal) {
        match refusal.reason {
            Reason::SessionExpired => drop(self.lose(&Loss::SessionEnded { cause: None })),
            Reason::WrongSecret => drop(self.lose(&Loss::WrongSecret)),
            // Another process has used the session and spent higher numbers. The refusal says from
            // where on numbers are accepted again.
            Reason::StaleRequest => {
                let lowest = refusal
                    .metadata
                    .get("lowest")
                    .and_then(|text| text.parse().ok());
                lock(&self.locked).numbers.skip_to(lowest.unwrap_or(0));
            }
            _ => {}
        }
    }

    /// The next request number; waits while too many are unconfirmed.
    pub(crate) async fn next_number(
        &self,
        what: RequestKind,
        deadline: Moment,
    ) -> Result<RequestNumber, CallError> {
        loop {
            // Created before the number is asked for: a number that is confirmed between the two
            // would otherwise be missed.
            let number_freed = self.number_freed.notified();
            if let Some(next_number) = lock(&self.locked).numbers.take(what) {
                return Ok(next_number);
            }
            crate::sync::select! {
                () = number_freed => {}
                () = self.transport.sleep_until(deadline) => {
                    let why = "too many requests of this session are unanswered; its oldest one \
                               holds the others up, use another session beside long waits";
                    return Err(CallError::Unavailable { why: why.into() });
                }
            }
        }
    }

    /// The request with this number is answered for good.
    pub(crate) fn confirm(&self, next_number: u64) {
        lock(&self.locked).numbers.confirm(next_number);
        self.number_freed.notify_waiters();
    }

    /// Tells watchers how the session stands, if that has changed.
    fn publish_state(&self, locked: &Locked, now: Moment) {
        let state = if now < locked.window.jeopardy_at() {
            SessionState::Live
        } else {
            SessionState::Jeopardy {
                valid_until: locked.window.valid_until(),
            }
        };
        self.state.send_if_modified(|known| {
            let changed = *known != state;
            if changed {
                let session = self.id();
                match (&known, &state) {
                    (SessionState::Live, SessionState::Jeopardy { .. }) => {
                        let left = locked.window.valid_until().saturating_since(now);
                        tracing::warn!(%session, ?left, "no keep-alive is acknowledged: the session is in jeopardy");
                    }
                    (SessionState::Jeopardy { .. }, SessionState::Live) => {
                        tracing::info!(%session, "the session is out of jeopardy");
                    }
                    _ => {}
                }
                *known = state;
            }
            changed
        });
    }
}

impl Locked {
    /// The next keep-alive, which is due now, acknowledges that this grant was lost.
    fn acknowledge_loss(&mut self, token: u64, now: Moment) {
        if self.losses.acknowledge(token) {
            self.renew_at(now);
        }
    }

    fn renew_at(&mut self, due: Moment) {
        self.renewal = Renewal { due, unanswered: 0 };
    }

    /// Whether a promised sign of life was overdue at that moment.
    fn is_stuck(&self, at: Moment) -> bool {
        let mut heartbeats = self.heartbeats.iter().filter_map(Weak::upgrade);
        heartbeats.any(|beat| beat.is_overdue(at))
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
