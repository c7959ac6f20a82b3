//! What a holder does: advances the guards, reads, writes, and believes as long as it may.

use std::cell::Cell;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use ringfence_check::history::{Admission, Belief, BeliefEnd, GuardAct, Record};
use ringfence_client::{HeldLease, Loss};
use ringfence_guard::Fence;

use super::recorder::Recorder;
use super::stores::Stores;
use crate::clock::{nanos, now_ns};

/// How often a holder asks whether it holds: the recorded belief is short of the true one by no
/// more than this.
const LOOK_EVERY: Duration = Duration::from_millis(15);
/// The client crate ends belief so long before the window's end at most.
const ENDS_EARLY: Duration = Duration::from_millis(20);
/// Steps of a holder's work.
const ROUNDS: std::ops::Range<u32> = 1..8;
/// How long one step takes.
const STEP_MS: std::ops::Range<u64> = 2..50;

/// A holder at work.
pub(super) struct Holding<'a> {
    pub(super) lease: &'a HeldLease,
    pub(super) fence: Fence,
    pub(super) stores: &'a Stores,
    /// Never asks whether it still holds.
    pub(super) careless: bool,
    /// What each store held when it looked; nothing if it does not know.
    pub(super) known: Vec<Option<i64>>,
    from: u64,
    last: Cell<u64>,
}

impl<'a> Holding<'a> {
    /// Begins right behind the grant.
    pub(super) fn begin(
        lease: &'a HeldLease,
        fence: Fence,
        stores: &'a Stores,
        careless: bool,
    ) -> Self {
        let now = now_ns();
        Self {
            lease,
            fence,
            stores,
            careless,
            known: vec![None; stores.count()],
            from: now,
            last: Cell::new(now),
        }
    }

    /// Works until it is done, or has lost the lease and noticed.
    pub(super) async fn work(&mut self, rng: &mut StdRng) {
        let rounds = rng.random_range(ROUNDS);
        let lease = self.lease;
        let last = Cell::new(self.last.get());
        {
            let working = self.steps(rounds, rng);
            tokio::select! {
                biased;
                () = look(lease, &last) => {}
                () = working => {}
            }
        }
        self.last.set(last.get());
    }

    async fn steps(&mut self, rounds: u32, rng: &mut StdRng) {
        // Before the first read: from here on the guards refuse earlier holders.
        for place in 0..self.stores.count() {
            let advanced = self.ask(place, GuardAct::Advance, 0).await;
            self.heed(advanced);
        }
        for _ in 0..rounds {
            tokio::time::sleep(Duration::from_millis(rng.random_range(STEP_MS))).await;
            if !self.careless && !self.lease.is_valid() {
                return;
            }
            for place in 0..self.stores.count() {
                self.add_one(place).await;
            }
        }
    }

    /// Reads if it must, and writes one more.
    async fn add_one(&mut self, place: usize) {
        if self.known[place].is_none() {
            let read = self.stores.ask(place, &self.fence, GuardAct::Read, 0).await;
            self.known[place] = read.value;
        }
        let Some(known) = self.known[place] else {
            return;
        };
        let admission = self.ask(place, GuardAct::Write, known + 1).await;
        self.known[place] = match admission {
            Admission::Admitted => Some(known + 1),
            Admission::Refused { .. } | Admission::Unknown | Admission::Failed => None,
        };
        self.heed(admission);
    }

    async fn ask(&self, place: usize, act: GuardAct, value: i64) -> Admission {
        let answer = self.stores.ask(place, &self.fence, act, value).await;
        answer.admission
    }

    /// A guard's refusal is final for the grant.
    fn heed(&self, admission: Admission) {
        if matches!(admission, Admission::Refused { .. }) && !self.careless {
            self.lease.report_stale();
        }
    }

    /// Writes down that belief has ended, or is about to be ended for this reason.
    pub(super) fn end(&self, recorder: &Recorder, why: BeliefEnd) {
        let now = now_ns();
        let (until, why) = match self.lease.loss() {
            None => (now, why),
            // Asked at any time before, the crate would have said yes.
            Some(Loss::WindowPassed) => {
                let window = nanos(self.lease.valid_until().since_boot());
                let until = window.saturating_sub(nanos(ENDS_EARLY));
                (until.max(self.last.get()), BeliefEnd::Window)
            }
            Some(Loss::Reported) => (self.last.get(), BeliefEnd::Refused),
            Some(_) => (self.last.get(), BeliefEnd::Told),
        };
        recorder.put(&Record::Belief(Belief {
            client: recorder.client(),
            session: self.lease.session().get(),
            lease: self.lease.name().to_string(),
            token: self.lease.token().get(),
            from: self.from,
            until: until.max(self.from),
            why,
        }));
    }
}

/// Notes when the lease was last seen to be held; never completes.
async fn look(lease: &HeldLease, last: &Cell<u64>) {
    loop {
        // Read before the question: if the answer is yes, it was held then.
        let now = now_ns();
        if lease.is_valid() {
            last.set(now);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
