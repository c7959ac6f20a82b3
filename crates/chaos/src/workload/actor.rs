//! One client's life: sessions, and what it does in them.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use ringfence_check::history::{self, BeliefEnd, Checked, Op, Outcome, Record, SessionEnded};
use ringfence_client::{
    Client, FencingToken, HeldLease, LeaseName, Loss, Session, SessionOptions, SessionState,
    TransferError, Verdict,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ClientOptions;
use super::holding::Holding;
use super::outcome;
use super::recorder::Recorder;
use super::stores::{Stores, fence};
use super::zombie::{Zombie, Zombies};
use crate::clock::{nanos, now_ns};

/// The TTLs of sessions: short, so that they run out while a client is paused or cut off.
const TTLS: [Duration; 3] = [
    Duration::from_millis(1_500),
    Duration::from_millis(2_500),
    Duration::from_secs(4),
];
/// How long a client stands in a queue.
const WAIT_MS: std::ops::Range<u64> = 200..3_000;
/// Between two things that a client does.
const PAUSE_MS: std::ops::Range<u64> = 2..60;
/// How many things it does in one session.
const ROUNDS: std::ops::Range<u32> = 5..40;
/// What it publishes with a grant.
const DATA: &[u8] = &[b'd'; 256];
/// How often it looks whether a keep-alive was acknowledged.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// What is taken off a time that is computed backwards, for what was rounded.
const ROUNDING: Duration = Duration::from_millis(1);

pub(super) struct Actor {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) options: ClientOptions,
    pub(super) stores: Stores,
    pub(super) zombies: Zombies,
    pub(super) rng: StdRng,
    pub(super) stop: watch::Receiver<bool>,
}

/// Whether a session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    On,
    Close,
    /// Something is under way in it that the history does not tell: closing it settles that, from
    /// this time on.
    CloseSince(u64),
    /// It is left to run out.
    Leave,
}

impl Actor {
    pub(super) async fn live(mut self) {
        while !*self.stop.borrow() {
            match self.open().await {
                Some(session) => self.serve(session).await,
                None => self.pause().await,
            }
        }
    }

    async fn pause(&mut self) {
        let pause = Duration::from_millis(self.rng.random_range(PAUSE_MS));
        tokio::time::sleep(pause).await;
    }

    async fn open(&mut self) -> Option<Session> {
        let ttl = TTLS[self.rng.random_range(0..TTLS.len())];
        let options = SessionOptions {
            ttl,
            identity: format!("c{}", self.options.number),
        };
        let op = Op::Open {
            ttl_ms: millis(ttl),
            open_id: None,
            acquire: None,
        };
        let id = self.recorder.invoked(None, op);
        let opened = self.client.open_session(options).await;
        let outcome = match &opened {
            Ok(session) => Outcome::Opened {
                session: session.id().get(),
                ttl_ms: millis(session.ttl()),
                acquired: None,
            },
            Err(error) => outcome::of_open(error),
        };
        self.recorder.returned(id, outcome);
        opened.ok()
    }

    /// Does things in a session until it is lost, or enough.
    async fn serve(&mut self, session: Session) {
        let looking = tokio::spawn(look(session.clone(), self.recorder.clone()));
        let looking = Aborted(looking);
        let mut then = Then::On;
        for _ in 0..self.rng.random_range(ROUNDS) {
            if *self.stop.borrow() || !session.is_live() {
                break;
            }
            then = self.act(&session).await;
            if then != Then::On {
                break;
            }
            self.pause().await;
        }
        drop(looking);
        match then {
            Then::Leave => drop(session.detach()),
            Then::CloseSince(since) => self.close(session, since).await,
            Then::On | Then::Close => self.close(session, now_ns()).await,
        }
    }

    async fn close(&mut self, session: Session, since: u64) {
        let number = Some(session.id().get());
        let id = self.recorder.invoked_at(since, number, Op::Close);
        let outcome = match session.close().await {
            Ok(()) => Outcome::Closed,
            Err(error) => outcome::of_call(&error.0),
        };
        self.recorder.returned(id, outcome);
    }

    async fn act(&mut self, session: &Session) -> Then {
        let name = self.choose();
        match self.rng.random_range(0..100) {
            0..15 => {
                self.get(&name).await;
                Then::On
            }
            _ => self.acquire(session, &name).await,
        }
    }

    fn choose(&mut self) -> LeaseName {
        let number = self.rng.random_range(1..=self.options.leases);
        let name = format!("{}{number}", self.options.prefix);
        LeaseName::parse(&name).expect("the prefix was checked when the run began")
    }

    async fn acquire(&mut self, session: &Session, name: &LeaseName) -> Then {
        let wait = self.rng.random_bool(0.7).then(|| {
            let wait = self.rng.random_range(WAIT_MS);
            Duration::from_millis(wait)
        });
        let delays = self.rng.random_bool(0.1);
        let lock_delay = Duration::from_millis(if delays { 500 } else { 0 });
        let mut asking = session
            .acquire(name.as_str())
            .data(DATA)
            .lock_delay(lock_delay);
        if let Some(wait) = wait {
            asking = asking.wait(wait);
        }
        let op = Op::Acquire(history::Acquire {
            lease: name.to_string(),
            wait_ms: wait.map(millis),
            lock_delay_ms: millis(lock_delay),
        });
        let begun = now_ns();
        let id = self
            .recorder
            .invoked_at(begun, Some(session.id().get()), op);
        let answer = asking.send().await;
        match answer {
            Ok(lease) => {
                let token = lease.token().get();
                self.recorder.returned(id, Outcome::Granted { token });
                self.hold(lease).await
            }
            Err(error) => {
                let outcome = outcome::of_acquire(&error);
                let open = matches!(outcome, Outcome::Unknown { .. });
                self.recorder.returned(id, outcome);
                // The crate takes it back in the background, which the history does not see.
                if open {
                    Then::CloseSince(begun)
                } else {
                    Then::On
                }
            }
        }
    }

    /// Works under the lease, then ends it in one of many ways.
    async fn hold(&mut self, lease: HeldLease) -> Then {
        let fence = fence(lease.name(), lease.token());
        let careless = self.rng.random_bool(0.3);
        let stores = self.stores.clone();
        let mut holding = Holding::begin(&lease, fence.clone(), &stores, careless);
        holding.work(&mut self.rng).await;
        if self.rng.random_bool(0.1) {
            self.check(lease.name(), lease.token()).await;
        }
        let zombie = self.rng.random_bool(0.6).then(|| Zombie {
            fence,
            remembered: holding.known.clone(),
        });

        let lost = lease.loss().is_some();
        let way = self.rng.random_range(0..100);
        let why = match way {
            0..65 => BeliefEnd::Released,
            65..85 => BeliefEnd::Transferred,
            85..92 => BeliefEnd::Closed,
            _ => BeliefEnd::Window,
        };
        holding.end(&self.recorder, why);
        drop(holding);
        let then = match (lost, way) {
            (true, _) => self.lost(lease),
            (_, 0..65) => self.release(lease).await,
            (_, 65..85) => self.transfer(lease).await,
            // The session is closed or left with it; nothing is sent for the lease itself.
            (_, 85..92) => {
                lease.forget();
                Then::Close
            }
            _ => {
                lease.forget();
                Then::Leave
            }
        };
        if let Some(zombie) = zombie {
            self.zombies.send(zombie).ok();
        }
        then
    }

    /// The lease is gone: nothing is sent for it, unless a guard refused it while the cluster
    /// thought it in force.
    fn lost(&self, lease: HeldLease) -> Then {
        let reported = lease.loss() == Some(Loss::Reported);
        drop(lease);
        // What was refused is released when the name is next acquired, unseen by the history.
        if reported { Then::Close } else { Then::On }
    }

    async fn release(&mut self, lease: HeldLease) -> Then {
        let op = release_of(&lease);
        let id = self.recorder.invoked(Some(lease.session().get()), op);
        match lease.release().await {
            Ok(()) => self.recorder.returned(id, Outcome::Released),
            Err(error) => {
                let error = error.to_string();
                self.recorder.returned(id, Outcome::Unknown { error });
            }
        }
        Then::On
    }

    async fn transfer(&mut self, lease: HeldLease) -> Then {
        let (session, name, token) = (lease.session().get(), lease.name().clone(), lease.token());
        let op = Op::Transfer {
            lease: name.to_string(),
            token: token.get(),
            to: None,
        };
        let begun = now_ns();
        let release = release_of(&lease);
        let id = self.recorder.invoked_at(begun, Some(session), op);
        match lease.transfer_to(None).await {
            Ok(done) => {
                let (to, token) = (done.to.get(), done.token.get());
                self.recorder
                    .returned(id, Outcome::Transferred { to, token });
                Then::On
            }
            Err(TransferError::NotWaiting { lease: Some(lease) }) => {
                self.recorder.returned(id, Outcome::NotWaiting);
                let back = Holding::begin(
                    &lease,
                    fence(lease.name(), lease.token()),
                    &self.stores,
                    false,
                );
                let lost = lease.loss().is_some();
                back.end(&self.recorder, BeliefEnd::Released);
                if lost {
                    return self.lost(lease);
                }
                self.release(lease).await
            }
            Err(error) => {
                self.recorder.returned(id, outcome::of_transfer(&error));
                // The crate releases it in the background then.
                self.recorder.invoked_at(begun, Some(session), release);
                Then::On
            }
        }
    }

    async fn get(&mut self, name: &LeaseName) {
        let lease = name.to_string();
        let id = self.recorder.invoked(None, Op::Get { lease });
        let outcome = match self.client.look_up(name).await {
            // No client holds a name that is not known, and no client waits for it.
            Ok(lease) => {
                let holder = lease.as_ref().and_then(|lease| lease.holder.as_ref());
                Outcome::Lease {
                    session: holder.map(|grant| grant.session.get()),
                    token: holder.map(|grant| grant.token.get()),
                    waiters: Some(lease.as_ref().map_or(0, |lease| lease.waiters)),
                }
            }
            Err(error) => outcome::of_call(&error),
        };
        self.recorder.returned(id, outcome);
    }

    async fn check(&mut self, name: &LeaseName, token: FencingToken) {
        let op = Op::Check {
            lease: name.to_string(),
            token: token.get(),
        };
        let id = self.recorder.invoked(None, op);
        let outcome = match self.client.check(name, token).await {
            Ok(verdict) => Outcome::Checked(match verdict {
                Verdict::Current => Checked::Current,
                Verdict::Superseded { newest } => Checked::Superseded(newest.get()),
                Verdict::Ended => Checked::Ended,
                Verdict::Unknown => Checked::Unknown,
            }),
            Err(error) => outcome::of_call(&error),
        };
        self.recorder.returned(id, outcome);
    }
}

fn release_of(lease: &HeldLease) -> Op {
    Op::Release {
        lease: lease.name().to_string(),
        token: lease.token().get(),
        close: false,
    }
}

/// A task that ends when this is dropped.
struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes down each acknowledged keep-alive, and the session's end if the cluster tells of it.
async fn look(session: Session, recorder: Recorder) {
    let (number, ttl) = (session.id().get(), session.ttl());
    // What the crate adds to the time of sending; see its documentation of windows.
    let window = ttl
        .saturating_sub(ttl / 100)
        .saturating_sub(Duration::from_millis(50).max(ttl / 50));
    let state = session.state();
    let mut told = session.valid_until();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let SessionState::Lost { why } = &*state.borrow() {
            if let Loss::SessionEnded { cause } = why {
                recorder.put(&Record::SessionEnded(SessionEnded {
                    client: recorder.client(),
                    session: number,
                    t: now_ns(),
                    cause: cause.as_ref().and_then(outcome::of_session_end),
                }));
            }
            return;
        }
        let valid_until = session.valid_until();
        if valid_until > told {
            told = valid_until;
            let sent = valid_until.since_boot().saturating_sub(window + ROUNDING);
            recorder.kept_alive(number, nanos(sent), millis(ttl));
        }
    }
}

/// Whole milliseconds, as the history has them.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
