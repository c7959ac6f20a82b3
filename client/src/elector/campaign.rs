//! A campaign: what is set up for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{InvalidName, InvalidText};

use super::Inner;
use super::gauges::{AlreadyRegistered, Gauges, Registration};
use super::handle::CampaignHandle;
use super::leading::Leading;
use super::limit::LeaseLimit;
use super::listeners::{Listeners, Stopped};
use super::shared::{Leader, Shared};

use crate::lease::identity::DuplicateIdentity;
use crate::lease::seal::Seal;
use crate::sync::lock;
use crate::transport::refusal::Refusal;

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
    pub(super) seal: Seal,
    pub(super) grace: Duration,
    pub(super) linger: bool,
    pub(super) observe: bool,
    pub(super) limit: Option<Arc<LeaseLimit>>,
    pub(super) shared: Arc<Shared>,
    /// Behind a lock so that the campaign's future can be sent to another thread.
    pub(super) listeners: Mutex<Listeners>,
    registration: Option<Registration>,
}

/// Why a campaign ended that no caller asked to end: no retry could heal it.
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
        /// The lease that two campaigns of one elector asked for.
        name: String,
    },
    /// The cluster refuses what was asked for, a lease duration out of its bounds for example.
    #[error("refused: {}", .0.message)]
    Refused(Box<Refusal>),
    /// It was [asked](CampaignHandle::leave) to end before it led.
    #[error("the campaign was asked to end")]
    Left,
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
            seal: Seal::default(),
            grace: Duration::ZERO,
            linger: false,
            observe: true,
            limit: None,
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

    /// For how long no client is granted the lease if a term of this candidate ends by expiry or
    /// revoke; up to 60 s, none unless set.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Seals each grant before a term begins: every guard that the seal names has raised its mark by
    /// then. A grant that cannot be sealed is given back; the campaign goes on after a pause, which
    /// doubles up to a minute, and its [state](CampaignHandle::state) says why.
    pub fn seal(mut self, seal: Seal) -> Self {
        self.seal = seal;
        self
    }

    /// How long work may go on after the campaign was asked to give up, while
    /// [`Leading::leaving`] tells it. None unless set: the work is dropped at once.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// After a term that was not lost, keeps the lease without work until the end of every
    /// [range](crate::Range) that was reported, so that the next holder's range begins behind it.
    /// Off unless set: then a term that is given up may overlap with the next one in wall time,
    /// though neither in tokens nor in belief. The range of a leader
    /// [for life](super::ElectorBuilder::for_life) has no end to wait for, so it gives up at once.
    pub fn linger(mut self, linger: bool) -> Self {
        self.linger = linger;
        self
    }

    /// Whether the campaign watches its lease: on unless switched off. Without it no listener is
    /// notified of other leaders, and a grant that an operator revokes is noticed by the next
    /// keep-alive only; a leader for life, which sends none, watches its lease while it leads all
    /// the same. A node has 10,000 watchers at most.
    pub fn observe(mut self, observe: bool) -> Self {
        self.observe = observe;
        self
    }

    /// Lets [`CampaignHandle::range`] go on when the lease was lost because the cluster fell
    /// silent, as a lease duration from now, until another client is seen to lead, or this
    /// candidate leads again. Off unless set.
    ///
    /// **The risk:** while it fails open another process may hold the lease, have a range that
    /// overlaps, and write with a greater token; this one only cannot see it. Use it where two
    /// writers do less harm than none, duplicated samples for example, and never in the place of a
    /// guard. Work is dropped at the loss all the same, and neither [`Leading::is_valid`](crate::Term::is_valid) nor
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

    pub(super) fn within(mut self, limit: Arc<LeaseLimit>) -> Self {
        self.limit = Some(limit);
        self
    }

    /// What looks at the campaign and asks it to give up.
    #[must_use]
    pub fn handle(&self) -> CampaignHandle {
        CampaignHandle {
            shared: Arc::clone(&self.shared),
        }
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
