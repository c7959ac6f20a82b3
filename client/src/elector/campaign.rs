//! A campaign: what is set up for it, and its way from term to term.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{InvalidName, InvalidText, LeaseName};
use ringfence_proto::refusal::Refusal;
use ringfence_proto::v1::Reason;
use tokio::sync::watch;

use super::back_off::BackOff;
use super::gauges::{AlreadyRegistered, Gauges, Registration};
use super::handle::{Ask, CampaignHandle, CampaignState};
use super::leading::Leading;
use super::observer::Observer;
use super::outcome::Outcome;
use super::shards::{Place, Room};
use super::shared::{Leader, Shared};
use super::term::{Listeners, StopCause, Stopped, tell};
use super::{Entry, Inner};
use crate::acquire::AcquireError;
use crate::error::{CallError, OpenError};
use crate::hub::lock;
use crate::identity::DuplicateIdentity;
use crate::lease::HeldLease;
use crate::session::{Session, SessionState};
use crate::view::View;

/// How long one request waits in the queue before another takes its place.
const WAIT: Duration = Duration::from_secs(12 * 60 * 60);

/// A campaign for one lease; [`Elector::campaign`](super::Elector::campaign) begins one.
///
/// It goes on for ever: a term that ends, for whatever reason, is followed by another, with a new
/// token and new work. Pauses behind terms whose work fails quickly double up to a minute.
#[must_use = "a campaign does nothing until it is run"]
pub struct Campaign {
    pub(super) elector: Arc<Inner>,
    pub(super) name: String,
    pub(super) shard: Option<u32>,
    pub(super) data: Bytes,
    pub(super) lock_delay: Duration,
    pub(super) grace: Duration,
    pub(super) linger: bool,
    observe: bool,
    room: Option<Arc<Room>>,
    pub(super) shared: Arc<Shared>,
    /// Behind a lock so that the campaign's future can be sent to another thread.
    pub(super) listeners: Mutex<Listeners>,
    registration: Option<Registration>,
}

/// Why a campaign ended that nobody asked to end: no retry could heal it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CampaignError {
    /// The name is no lease name.
    #[error(transparent)]
    InvalidName(InvalidName),
    /// The elector's identity is too long or has control characters.
    #[error("identity: {0}")]
    InvalidIdentity(InvalidText),
    /// This elector campaigns for that name already.
    #[error("this elector campaigns for {name:?} already; use its handle, or another elector")]
    Twice {
        /// The name.
        name: String,
    },
    /// The cluster refuses what was asked for, a lease duration out of its bounds for example.
    #[error("refused: {}", .0.message)]
    Refused(Box<Refusal>),
    /// It was [asked](CampaignHandle::leave) to end before it led.
    #[error("the campaign was asked to end")]
    Left,
}

/// Why no lease was acquired this time.
pub(super) enum Stood {
    /// Worth another try.
    Failed(String),
    /// At once, since that was no failure.
    Again,
    /// Asked to leave.
    Left,
    /// Not worth another try.
    Hopeless(CampaignError),
}

impl Campaign {
    pub(super) fn new(elector: Arc<Inner>, name: String, shard: Option<u32>) -> Self {
        let shared = Arc::new(Shared::new(elector.timings.lease_duration()));
        Self {
            elector,
            name,
            shard,
            data: Bytes::new(),
            lock_delay: Duration::ZERO,
            grace: Duration::ZERO,
            linger: false,
            observe: true,
            room: None,
            shared,
            listeners: Mutex::default(),
            registration: None,
        }
    }

    /// Publishes up to 1 KiB with each grant, the leader's address for example.
    pub fn data(mut self, data: impl Into<Bytes>) -> Self {
        self.data = data.into();
        self
    }

    /// For how long nobody is granted the lease if a term of this candidate ends by expiry or
    /// revoke; up to 60 s, none unless set.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// How long work may go on after the campaign was asked to give up, while
    /// [`Leading::leaving`] tells it. None unless set: the work is dropped at once.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// After a term that was not lost, keeps the lease without work until the end of every
    /// [range](crate::Range) that was told, so that the next holder's range begins behind it. Off
    /// unless set: then a term that is given up may overlap with the next one in wall time, though
    /// neither in tokens nor in belief.
    pub fn linger(mut self, linger: bool) -> Self {
        self.linger = linger;
        self
    }

    /// Whether the campaign watches its lease: on unless switched off. Without it nobody is told of
    /// other leaders, and a grant that an operator revokes is noticed by the next keep-alive only. A
    /// node has 10,000 watchers at most.
    pub fn observe(mut self, observe: bool) -> Self {
        self.observe = observe;
        self
    }

    /// Lets [`CampaignHandle::range`] go on when the lease was lost because the cluster fell
    /// silent, as a lease duration from now, until somebody else is seen to lead, or this candidate
    /// leads again. Off unless set.
    ///
    /// **The risk:** while it fails open another process may hold the lease, have a range that
    /// overlaps, and write with a greater token; this one only cannot see it. Use it where two
    /// writers do less harm than none, duplicated samples for example, and never in the place of a
    /// guard. Work is dropped at the loss all the same, and neither [`Leading::is_valid`] nor
    /// [`CampaignHandle::is_leading`] ever fails open. A process that starts while the cluster is
    /// silent has never held the lease, and has no range.
    pub fn fail_open(mut self, fail_open: bool) -> Self {
        self.shared.set_fail_open(fail_open);
        self.observe |= fail_open;
        self
    }

    /// Shows the campaign on a program's gauges.
    ///
    /// # Errors
    /// [`AlreadyRegistered`] if there is a campaign for this lease on them already.
    pub fn gauges(mut self, gauges: &Gauges) -> Result<Self, AlreadyRegistered> {
        self.registration = Some(gauges.register(&self.name, &self.shared)?);
        Ok(self)
    }

    /// Is called when a term begins, before its work.
    pub fn on_started(self, listener: impl FnMut(&Leading) + Send + 'static) -> Self {
        lock(&self.listeners).started = Some(Box::new(listener));
        self
    }

    /// Is called once for each term that began, after its work was dropped and before its lease is
    /// given up; never without a term. It is not called if the future of the campaign itself is
    /// dropped.
    pub fn on_stopped(self, listener: impl FnMut(&Stopped) + Send + 'static) -> Self {
        lock(&self.listeners).stopped = Some(Box::new(listener));
        self
    }

    /// Is called when a grant is seen that was not seen before, this candidate's own included, with
    /// the newest one. Calls come from within the campaign's future, between its other steps.
    pub fn on_new_leader(self, listener: impl FnMut(&Leader) + Send + 'static) -> Self {
        lock(&self.listeners).new_leader = Some(Box::new(listener));
        self
    }

    /// Is called when the leader is another living process that uses this candidate's identity.
    /// Proof takes up to a lease duration: a former life of this process looks the same at first.
    pub fn on_duplicate(self, listener: impl FnMut(&DuplicateIdentity) + Send + 'static) -> Self {
        lock(&self.listeners).duplicate = Some(Box::new(listener));
        self
    }

    pub(super) fn within(mut self, room: Arc<Room>) -> Self {
        self.room = Some(room);
        self
    }

    /// What looks at the campaign and asks it to give up.
    #[must_use]
    pub fn handle(&self) -> CampaignHandle {
        CampaignHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Campaigns for ever, or until [`CampaignHandle::leave`]. In each term `work` is called and
    /// what it returns is run until it is done or the term is over; then it is dropped. When it is
    /// done, fails or panics, the lease is given up: a leader that cannot do its work is none.
    ///
    /// Dropping the future drops the work and releases the lease.
    ///
    /// # Errors
    /// [`CampaignError`] if no retry can help.
    pub async fn run<W, F>(mut self, mut work: W) -> Result<(), CampaignError>
    where
        W: FnMut(Leading) -> F,
        F: Future,
        F::Output: Outcome,
    {
        let running = self.begin()?;
        let telling = self.tell();
        let result = tokio::select! {
            biased;
            never = telling => match never {},
            result = self.terms(&running.name, &mut work) => result,
        };
        self.shared.state.send_replace(CampaignState::Over);
        result
    }

    /// Campaigns for ever with the callbacks alone, as client-go does: `on_started` may spawn what
    /// it likes, which has to stop at [`Leading::lost`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_callbacks(self) -> Result<(), CampaignError> {
        self.run(|leading| async move { drop(leading.lost().await) })
            .await
    }

    /// Waits until this candidate leads, however long that takes and whatever fails meanwhile, and
    /// returns the lease: one call that blocks, and afterwards no step of the elector's any more.
    /// Of the listeners those for other leaders are told until then.
    ///
    /// # Errors
    /// [`CampaignError`] if no retry can help, or it was asked to leave.
    pub async fn lead(mut self) -> Result<HeldLease, CampaignError> {
        let running = self.begin()?;
        let mut pauses = BackOff::new(&self.elector.timings);
        let telling = self.tell();
        let leading = async {
            loop {
                if let Some((lease, _place)) = self.stand(&running.name, &mut pauses).await? {
                    self.shared.begin_term(&View::of(&lease));
                    return Ok(lease);
                }
            }
        };
        tokio::select! {
            biased;
            never = telling => match never {},
            result = leading => result,
        }
    }

    /// Waits until this candidate leads, runs `work` to its end, gives the lease up and returns what
    /// the work returned. If the lease is lost before, the work is dropped, and begun anew under
    /// the next one: it has to bear being begun more than once.
    ///
    /// # Errors
    /// [`CampaignError`] if no retry can help, or it was asked to leave.
    pub async fn once<W, F>(mut self, mut work: W) -> Result<F::Output, CampaignError>
    where
        W: FnMut(Leading) -> F,
        F: Future,
    {
        let running = self.begin()?;
        let mut pauses = BackOff::new(&self.elector.timings);
        loop {
            let Some((lease, _place)) = self.stand(&running.name, &mut pauses).await? else {
                continue;
            };
            let view = View::of(&lease);
            self.shared.begin_term(&view);
            // Nobody asks a single run to leave in the middle.
            let (_leaving, leaving) = watch::channel(false);
            let leading = Leading {
                view: view.clone(),
                shard: self.shard,
                leaving,
            };
            match view.run(work(leading)).await {
                Ok(output) => {
                    if let Err(error) = lease.release().await {
                        tracing::debug!(%error, "not released; if it is still held it will be");
                    }
                    return Ok(output);
                }
                Err(loss) => self.pause(pauses.after_term(), &loss.to_string()).await,
            }
        }
    }

    /// From term to term.
    async fn terms<W, F>(&mut self, name: &LeaseName, work: &mut W) -> Result<(), CampaignError>
    where
        W: FnMut(Leading) -> F,
        F: Future,
        F::Output: Outcome,
    {
        let mut pauses = BackOff::new(&self.elector.timings);
        loop {
            let stood = match self.stand(name, &mut pauses).await {
                Err(CampaignError::Left) => return Ok(()),
                stood => stood?,
            };
            let Some((lease, place)) = stood else {
                continue;
            };
            let began = self.elector.client.now();
            let cause = self.term(lease, work).await;
            drop(place);
            if self.shared.ask.borrow().leave {
                return Ok(());
            }
            let lasted = self.elector.client.now().saturating_since(began);
            let pause = match cause {
                StopCause::Lost(_) | StopCause::Asked => pauses.after_term(),
                StopCause::Done => pauses.after_work(),
                StopCause::Failed(_) | StopCause::Panicked(_) => pauses.after_failure(lasted),
            };
            self.pause(pause, &cause.to_string()).await;
        }
    }

    /// Waits for the lease once. `None`: try again; the pause is over.
    async fn stand(
        &mut self,
        name: &LeaseName,
        pauses: &mut BackOff,
    ) -> Result<Option<(HeldLease, Option<Place>)>, CampaignError> {
        self.shared.state.send_replace(CampaignState::Waiting);
        let leave = left(&self.shared);
        let stood = tokio::select! {
            biased;
            () = leave => Err(Stood::Left),
            stood = self.acquire(name) => stood,
        };
        match stood {
            Ok(granted) => Ok(Some(granted)),
            Err(Stood::Again) => Ok(None),
            Err(Stood::Left) => Err(CampaignError::Left),
            Err(Stood::Hopeless(error)) => Err(error),
            Err(Stood::Failed(why)) => {
                tracing::debug!(name = self.name, why, "not acquired");
                self.pause(pauses.after_failure(Duration::ZERO), &why).await;
                Ok(None)
            }
        }
    }

    /// Waits for room, then for the lease.
    async fn acquire(&self, name: &LeaseName) -> Result<(HeldLease, Option<Place>), Stood> {
        if let Some(room) = &self.room {
            room.free().await;
        }
        let session = self.elector.session().await.map_err(not_opened)?;
        let full = async {
            match &self.room {
                Some(room) => room.full().await,
                None => std::future::pending().await,
            }
        };
        let acquire = session.acquire(name.as_str()).wait(WAIT);
        let acquire = acquire.data(self.data.clone()).lock_delay(self.lock_delay);
        let lease = tokio::select! {
            biased;
            acquired = acquire.send() => acquired.map_err(not_acquired)?,
            // Who waits for a session that is over would wait for nothing.
            () = over(&session) => return Err(Stood::Failed("the session was lost".into())),
            () = full => return Err(Stood::Again),
        };
        match &self.room {
            None => Ok((lease, None)),
            Some(room) => match room.take() {
                Some(place) => Ok((lease, Some(place))),
                None => Err(Stood::Again),
            },
        }
    }

    /// Pauses, but not if it was asked to leave.
    pub(super) async fn pause(&self, pause: Duration, why: &str) {
        self.shared.state.send_replace(CampaignState::Pausing {
            pause,
            why: why.into(),
        });
        let client = &self.elector.client;
        tokio::select! {
            () = client.sleep_until(client.now() + pause) => {}
            () = left(&self.shared) => {}
        }
    }

    /// Tells those listeners that are told beside the terms.
    fn tell(&self) -> impl Future<Output = Infallible> + use<> {
        let mut listeners = lock(&self.listeners);
        tell(
            Arc::clone(&self.elector),
            Arc::clone(&self.shared),
            listeners.new_leader.take(),
            listeners.duplicate.take(),
        )
    }

    fn begin(&self) -> Result<Running, CampaignError> {
        let name = LeaseName::parse(&self.name).map_err(CampaignError::InvalidName)?;
        let entry = self.elector.enter(&self.name);
        let twice = || CampaignError::Twice {
            name: self.name.clone(),
        };
        let entry = entry.ok_or_else(twice)?;
        let observer = self.observe.then(|| {
            let (shared, own) = (Arc::clone(&self.shared), Arc::clone(&self.elector.own));
            Observer::begin(&self.elector.client, name.clone(), move |grant| {
                shared.saw(grant.and_then(|grant| Leader::from_wire(grant, &own)));
            })
        });
        Ok(Running {
            name,
            _entry: entry,
            _observer: observer,
        })
    }
}

/// What lasts as long as a campaign runs.
struct Running {
    name: LeaseName,
    _entry: Entry,
    _observer: Option<Observer>,
}

/// Completes when the campaign is asked to end.
async fn left(shared: &Shared) {
    let mut ask: watch::Receiver<Ask> = shared.ask.subscribe();
    // The sender lives as long as the campaign.
    ask.wait_for(|ask| ask.leave).await.map(drop).ok();
}

/// Completes when the session is lost.
async fn over(session: &Session) {
    let mut state = session.state();
    let lost = |state: &SessionState| matches!(state, SessionState::Lost { .. });
    state.wait_for(lost).await.map(drop).ok();
}

fn not_opened(error: OpenError) -> Stood {
    match error {
        OpenError::InvalidIdentity(fault) => Stood::Hopeless(CampaignError::InvalidIdentity(fault)),
        OpenError::Call(error) => failed(error),
        OpenError::TooLate => Stood::Failed(error.to_string()),
    }
}

fn not_acquired(error: AcquireError) -> Stood {
    match error {
        AcquireError::InvalidName(fault) => Stood::Hopeless(CampaignError::InvalidName(fault)),
        AcquireError::TimedOut => Stood::Again,
        AcquireError::Call(error) => failed(error),
        AcquireError::Held(_)
        | AcquireError::Queued { .. }
        | AcquireError::NotNow { .. }
        | AcquireError::Ended(_)
        | AcquireError::SessionLost(_) => Stood::Failed(error.to_string()),
    }
}

fn failed(error: CallError) -> Stood {
    match error {
        CallError::Refused(refusal) if refusal.reason == Reason::InvalidArgument => {
            Stood::Hopeless(CampaignError::Refused(refusal))
        }
        error => Stood::Failed(error.to_string()),
    }
}

impl std::fmt::Debug for Campaign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Campaign({:?} for {:?})",
            self.elector.identity, self.name
        )
    }
}
