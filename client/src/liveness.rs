//! What this client knows of one of its sessions: how long it may believe in it, what it holds,
//! which request numbers are spent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rand::Rng;
use ringfence_core::{FencingToken, LeaseName, SessionId};
use ringfence_planted::{Bug, planted};
use ringfence_proto::refusal::Refusal;
use ringfence_proto::v1::{self, Reason};
use tokio::sync::{Notify, watch};

use crate::chance;
use crate::clock::Moment;
use crate::error::CallError;
use crate::grant::{Belief, Grant};
use crate::handle::SessionHandle;
use crate::heartbeat::Beat;
use crate::hub::{Hub, lock};
use crate::loss::Loss;
use crate::losses::Losses;
use crate::numbers::{Number, Numbers, Use};
use crate::session::SessionState;
use crate::window::{Extended, Window};

/// The TTL, as the cluster tells it, of a session that lasts as long as a Pod.
const FOR_LIFE: Duration = Duration::from_millis(u64::MAX);

/// One session, as long as this client has to do with it.
pub(crate) struct Liveness {
    pub(crate) hub: Arc<Hub>,
    /// Tells it from another of the same session in the same client.
    key: u64,
    handle: SessionHandle,
    ttl: Duration,
    /// What the times of its keep-alives are parts of: its TTL, or less if belief ends sooner.
    pace: Duration,
    state: watch::Sender<SessionState>,
    /// A request number was confirmed: those who wait for room look again.
    pub(crate) room: Notify,
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
        hub: Arc<Hub>,
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
        let key = hub.next_key();
        Self {
            hub,
            key,
            handle,
            ttl,
            pace: ttl,
            state,
            room: Notify::new(),
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

    /// Whether it lasts as long as a Pod: then nobody sends keep-alives for it unasked.
    pub(crate) fn is_for_life(&self) -> bool {
        self.ttl == FOR_LIFE
    }

    pub(crate) fn state(&self) -> watch::Receiver<SessionState> {
        self.state.subscribe()
    }

    pub(crate) fn valid_until(&self) -> Moment {
        lock(&self.inner).window.valid_until()
    }

    /// Why the session is over, if it is. Asks the clock: a window that has passed is lost here and
    /// now, whoever looks first.
    pub(crate) fn loss(self: &Arc<Self>) -> Option<Loss> {
        let now = self.hub.now();
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
        if let Belief::Over(loss) = grant.belief() {
            return Some(loss);
        }
        self.loss()
    }

    /// Ends the session for this client, for ever, and belief in all it holds. Says whether it was
    /// not over before.
    pub(crate) fn lose(self: &Arc<Self>, why: &Loss) -> bool {
        let grants = {
            let mut inner = lock(&self.inner);
            if inner.lost.is_some() {
                return false;
            }
            inner.lost = Some(why.clone());
            self.state
                .send_replace(SessionState::Lost { why: why.clone() });
            std::mem::take(&mut inner.grants)
        };
        for grant in grants.into_values() {
            if grant.end(why) && may_still_be_granted(why) {
                self.hub
                    .unsettled
                    .note_release(self, &grant.name, grant.token);
            }
        }
        match why {
            Loss::SessionEnded { .. } | Loss::ClusterChanged => {
                self.hub.unsettled.session_over(self.id());
            }
            // Only this attachment is over.
            Loss::Left | Loss::WrongSecret => self.hub.unsettled.left(self.key),
            _ => {}
        }
        self.hub.unregister(self);
        self.room.notify_waiters();
        true
    }

    /// A keep-alive was acknowledged that was first sent at `sent`, and what it told of losses is
    /// known here. Nothing else may stretch belief: no other answer tells of losses.
    pub(crate) fn acknowledge(self: &Arc<Self>, sent: Moment) {
        let now = self.hub.now();
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
                inner.renewal = Renewal {
                    due: sent + interval(self.pace),
                    unanswered: 0,
                };
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
            renewal.due = now + (self.pace / 20).max(Duration::from_millis(1));
            return None;
        }
        // Again after a twentieth of the TTL, then after twice as long each time.
        let pause = (self.pace / 20).saturating_mul(1 << renewal.unanswered.min(2));
        renewal.due = now + pause.max(Duration::from_millis(1));
        renewal.unanswered = renewal.unanswered.saturating_add(1);
        let acknowledged = inner.losses.to_acknowledge().collect();
        Some(Part {
            handle: self.handle.to_wire(),
            acknowledged,
        })
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

    /// These grants ended against the session's will. Belief in them ends before this returns.
    pub(crate) fn grants_lost(&self, grants: &[v1::LostGrant]) {
        let now = self.hub.now();
        for lost in grants {
            let mut inner = lock(&self.inner);
            let grant = inner.grants.remove(&lost.token);
            if inner.losses.listed(lost.token) && grant.is_none() {
                inner.noticed(lost.token, now);
            }
            drop(inner);
            if let Some(grant) = grant {
                let cause = lost.cause.clone();
                grant.end(&Loss::GrantEnded { cause });
                lock(&self.inner).noticed(lost.token, now);
            }
        }
        self.hub.sooner.notify_one();
    }

    /// A watch tells that one of its grants has ended, before a keep-alive does.
    pub(crate) fn told_ended(&self, lost: v1::LostGrant) {
        let grant = lock(&self.inner).grants.get(&lost.token).cloned();
        if grant.is_some_and(|grant| grant.belief() == Belief::Held) {
            self.grants_lost(&[lost]);
        }
    }

    /// A watch begins to tell, and this grant of the lease is the present one. If another is believed
    /// in here, its end came before the watch did: the answer to a keep-alive tells of it.
    pub(crate) fn told_present(&self, name: &LeaseName, token: Option<u64>) {
        let is_other = |grant: &Arc<Grant>| grant.name == *name && Some(grant.token.get()) != token;
        if lock(&self.inner).grants.values().any(is_other) {
            self.hurry(self.hub.now());
            self.hub.sooner.notify_one();
        }
    }

    /// Renews only while this sign of life comes in time.
    pub(crate) fn promise(&self, beat: &Arc<Beat>) {
        let mut inner = lock(&self.inner);
        inner.beats.retain(|beat| beat.strong_count() > 0);
        inner.beats.push(Arc::downgrade(beat));
    }

    /// Begins to believe in a grant, unless it or the session was lost meanwhile; then the cluster
    /// may still grant it.
    pub(crate) fn admit(self: &Arc<Self>, grant: Grant) -> Result<Arc<Grant>, Loss> {
        let loss = self.loss();
        let mut inner = lock(&self.inner);
        let gone = inner.losses.has_listed(grant.token.get())
            && !planted(Bug::LossBeforeItsGrantForgotten);
        let listed = gone.then_some(Loss::GrantEnded { cause: None });
        if let Some(loss) = loss.or_else(|| inner.lost.clone()).or(listed) {
            drop(inner);
            self.disown(grant.token);
            self.hub
                .unsettled
                .note_release(self, &grant.name, grant.token);
            return Err(loss);
        }
        let grant = Arc::new(grant);
        inner.grants.insert(grant.token.get(), Arc::clone(&grant));
        Ok(grant)
    }

    /// A grant was made at this client's own wish, and it has not begun to believe in it. When it is
    /// told that it was lost, or has been told before, it acknowledges that.
    pub(crate) fn disown(&self, token: FencingToken) {
        let now = self.hub.now();
        let mut inner = lock(&self.inner);
        if inner.losses.has_listed(token.get()) {
            inner.noticed(token.get(), now);
            drop(inner);
            self.hub.sooner.notify_one();
        } else {
            inner.losses.give_up(token.get());
        }
    }

    /// Belief in a grant has ended by this client's own doing.
    pub(crate) fn drop_grant(&self, token: FencingToken) {
        let mut inner = lock(&self.inner);
        inner.grants.remove(&token.get());
        inner.losses.give_up(token.get());
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
                () = self.hub.sleep_until(deadline) => {
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
            self.renewal = Renewal {
                due: now,
                unanswered: 0,
            };
        }
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

/// Whether the cluster may still grant what was lost for this reason.
fn may_still_be_granted(why: &Loss) -> bool {
    match why {
        Loss::WindowPassed | Loss::Stuck | Loss::Reported | Loss::Closed => true,
        Loss::SessionEnded { .. }
        | Loss::GrantEnded { .. }
        | Loss::WrongSecret
        | Loss::ClusterChanged
        | Loss::Left
        | Loss::Released => false,
    }
}
