//! Who works with leases: acquires them, writes while they last, gives them up.

use std::sync::Arc;
use std::time::Duration;

use ringfence_check::history::BeliefEnd;
use ringfence_client::sim::Host;
use ringfence_client::{Acquire, Client, HeldLease, Loss, Seal, Session, TransferError};
use tokio::time::sleep;

use super::Work;
use crate::client::SimClient;
use crate::guards::{Store, Visitor};
use crate::observe::{Belief, Observation};
use crate::random::Random;

/// How long a worker rests between two leases.
const REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(1_500));
/// How long a wait lasts at most.
const WAIT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(8));
/// How long a holder thinks between two writes.
const THINK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(600));
/// The most writes under one grant.
const WRITES_MAX: u64 = 8;
/// How long a zombie goes on when its lease is lost.
const UNDEAD: Duration = Duration::from_secs(6);

/// One worker of a session.
pub(super) struct Holder {
    pub(super) client: SimClient,
    pub(super) host: Arc<Host>,
    pub(super) work: Arc<Work>,
    pub(super) connected: Client,
    pub(super) session: Session,
    pub(super) random: Random,
    /// In true time.
    pub(super) until: Duration,
}

/// A lease that is held, as far as its client knows.
pub(super) struct Holding {
    lease: HeldLease,
    seal: Option<Seal>,
    session: Session,
    client: SimClient,
    belief: Belief,
}

impl Holder {
    /// Works until the time is over, or the session is. What it holds then it may hand back.
    pub(super) async fn work(mut self) -> Option<Holding> {
        while self.goes_on() {
            if let Some((lease, seal)) = self.acquire().await {
                let holding = self.believe(lease, seal);
                let holding = self.hold(holding).await;
                if let Some(holding) = holding
                    && let Some(kept) = self.give_up(holding).await
                {
                    return Some(kept);
                }
            }
            self.pause(REST).await;
        }
        None
    }

    async fn pause(&mut self, lasts: (Duration, Duration)) {
        let brisk = self.random.time(lasts.0..lasts.1);
        sleep(self.work.pace.of(brisk)).await;
    }

    fn goes_on(&self) -> bool {
        let in_time = self.client.world().now() < self.until;
        in_time && !self.work.is_over() && self.session.is_live()
    }

    /// A lease, and what it was sealed with.
    async fn acquire(&mut self) -> Option<(HeldLease, Option<Seal>)> {
        let names: Vec<&String> = self.work.stores.keys().collect();
        let name = (*self.random.pick(&names)?).clone();
        self.disturb_stores(&name).await;
        let seal = self.seal(&name);
        let mut acquire = self.session.acquire(name);
        if let Some(seal) = &seal {
            acquire = acquire.seal(seal.clone());
        }
        let lease = self.send(acquire).await?;
        Some((lease, seal))
    }

    async fn send(&mut self, mut acquire: Acquire) -> Option<HeldLease> {
        if self.random.chance(200) {
            acquire = acquire.lock_delay(Duration::from_millis(700));
        }
        if self.random.chance(400) {
            return acquire.send().await.ok();
        }
        let wait = self.work.pace.of(self.random.time(WAIT.0..WAIT.1));
        let acquire = acquire.wait(Duration::from_millis(
            u64::try_from(wait.as_millis()).unwrap_or_default(),
        ));
        if self.random.chance(700) {
            return acquire.send().await.ok();
        }
        // Gives up in between, at any point: nothing may be left behind.
        let patience = self.random.time(Duration::ZERO..wait);
        tokio::time::timeout(patience, acquire.send())
            .await
            .ok()?
            .ok()
    }

    fn believe(&self, lease: HeldLease, seal: Option<Seal>) -> Holding {
        if let Some(seal) = &seal {
            self.saw_sealed(&lease, seal);
        }
        let belief = Belief {
            client: self.client.number(),
            session: lease.session().get(),
            lease: lease.name().to_string(),
            token: lease.token().get(),
        };
        let holding = Holding {
            session: self.session.clone(),
            client: self.client.clone(),
            lease,
            seal,
            belief,
        };
        holding.believe();
        self.listen(&holding);
        holding
    }

    /// Hears of the loss, as an application that waits for it does.
    fn listen(&self, holding: &Holding) {
        let (client, session) = (self.client.clone(), self.session.clone());
        let (lost, belief) = (holding.lease.lost(), holding.belief.clone());
        drop(self.host.spawn(async move {
            let why = match lost.await {
                Loss::Released => BeliefEnd::Released,
                Loss::Closed | Loss::Detached => BeliefEnd::Closed,
                Loss::WindowPassed | Loss::Stuck => BeliefEnd::Window,
                Loss::Reported => BeliefEnd::Refused,
                _ => BeliefEnd::Told,
            };
            doubt(&client, &session, &belief, why);
        }));
    }

    /// Writes while the lease lasts. Gives it back if it is still there.
    async fn hold(&mut self, holding: Holding) -> Option<Holding> {
        let (store, sealed) = self.store_for(&holding.lease, holding.seal.as_ref())?;
        let zombie = self.random.chance(self.work.zombies_per_mille);
        let by = Visitor::with(self.client.number(), self.client.machine(), &holding.lease);
        let mut undead_until = None;
        let Some(mut version) = self.first_read(&store, &by, sealed).await else {
            return self.refused(holding);
        };
        for _ in 0..self.random.within(0..WRITES_MAX) {
            self.pause(THINK).await;
            if !holding.look() {
                let now = self.client.world().now();
                let until = *undead_until.get_or_insert(now + self.work.pace.of(UNDEAD));
                if !zombie || now >= until {
                    return None;
                }
            }
            match self.write(&store, &by, version).await {
                Some(written) => version = written,
                None => return self.refused(holding),
            }
        }
        holding.look().then_some(holding)
    }

    async fn write(&mut self, store: &Store, by: &Visitor, version: u64) -> Option<u64> {
        if self.random.chance(150) {
            self.read(by).await;
        }
        store.write(by, version).await.ok()
    }

    /// A refusal is final for the grant.
    fn refused(&self, holding: Holding) -> Option<Holding> {
        holding.doubt(BeliefEnd::Refused);
        holding.lease.report_stale();
        None
    }

    /// Asks the cluster what the token is worth, or who holds the lease.
    async fn read(&mut self, by: &Visitor) {
        let (name, token) = by.fence();
        // What matters is written down on the way.
        if self.random.chance(500) {
            self.connected.check(&name, token).await.ok();
        } else {
            self.connected.look_up(&name).await.ok();
        }
    }

    /// Gives a lease up in one of the ways there are; what is kept to the session's end comes back.
    async fn give_up(&mut self, holding: Holding) -> Option<Holding> {
        match self.random.within(0..10) {
            0..=3 => holding.release().await,
            4..=5 => return self.hand_over(holding).await,
            6..=7 => holding.doubt(BeliefEnd::Released),
            8 => {
                while self.goes_on() && holding.look() {
                    self.pause(REST).await;
                }
                holding.release().await;
            }
            _ => return Some(holding),
        }
        None
    }

    async fn hand_over(&mut self, holding: Holding) -> Option<Holding> {
        holding.doubt(BeliefEnd::Transferred);
        let Holding {
            lease,
            seal,
            session,
            client,
            belief,
        } = holding;
        if let Err(TransferError::NotWaiting { lease: Some(lease) }) = lease.transfer_to(None).await
        {
            let holding = Holding {
                lease,
                seal,
                session,
                client,
                belief,
            };
            if holding.lease.is_valid() {
                holding.believe();
            }
            holding.release().await;
        }
        None
    }
}

impl Holding {
    fn believe(&self) {
        self.client.recorder().believe(&self.belief);
    }

    /// Whether it is held at this instant.
    fn look(&self) -> bool {
        let held = self.lease.is_valid();
        self.client.recorder().see(Observation::Looked {
            belief: self.belief.clone(),
            held,
        });
        held
    }

    /// Its holder believes in it no more.
    pub(super) fn doubt(&self, why: BeliefEnd) {
        doubt(&self.client, &self.session, &self.belief, why);
    }

    /// Gives it back.
    pub(super) async fn release(self) {
        self.doubt(BeliefEnd::Released);
        self.lease.release().await.ok();
    }
}

/// Belief has ended, now or when the clock passed the window's end while no code looked.
fn doubt(client: &SimClient, session: &Session, belief: &Belief, why: BeliefEnd) {
    let window = client.true_time_of(session.valid_until());
    client.recorder().doubt(belief, window, why);
}
