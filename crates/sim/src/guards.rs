//! Guarded stores: the real guard in memory, before a value that each write replaces by a new
//! version of what it has read. A store can hang, answer late, and be set back to an older copy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{HeldLease, SealAnswer, Sealable, Sealing};
use ringfence_core::{FencingToken, LeaseName};
use ringfence_guard::{Ceiling, Fence, Guard, Refused};
use tokio::sync::watch;

use crate::lock::lock;
use crate::machine::Machine;
use crate::observe::{Act, Observation, Recorder, StoreRestored, Visit};
use crate::world::World;

/// The store that a lease protects. Clones are the same store.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    lease: LeaseName,
    world: World,
    machine: Machine,
    recorder: Recorder,
    /// Whether its replica lags, so that what it has acknowledged can be lost.
    lossy: bool,
    state: Mutex<State>,
    /// For how many reasons it serves no visitor now.
    closed: watch::Sender<usize>,
    /// How long its answers take.
    late: Mutex<Duration>,
}

/// The mark; the data: the version that was written last, and a number for the next one; and a copy of
/// both.
struct State {
    guard: Guard,
    version: u64,
    last: u64,
    copy: Copied,
}

/// A copy of a store: its mark and its version.
#[derive(Clone, Copy, Default)]
struct Copied {
    mark: Option<FencingToken>,
    version: u64,
}

/// A write that was refused: the grant is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

/// Keeps a store closed.
struct Closed(Arc<Shared>);

impl Store {
    /// The store number `number` of `lease`, on a machine of its own.
    #[must_use]
    pub fn new(world: &World, lease: &LeaseName, number: usize, recorder: &Recorder) -> Self {
        let name = match number {
            0 => format!("store-{lease}"),
            _ => format!("store-{lease}-{number}"),
        };
        Self {
            shared: Arc::new(Shared {
                machine: world.machine(&name),
                lossy: world.random(&name).fork("lossy").chance(150),
                state: Mutex::new(State {
                    guard: guard(lease),
                    version: 0,
                    last: 0,
                    copy: Copied::default(),
                }),
                name,
                lease: lease.clone(),
                world: world.clone(),
                recorder: recorder.clone(),
                closed: watch::Sender::new(0),
                late: Mutex::default(),
            }),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.shared.machine
    }

    /// Tells the guard of a grant, and reads what is there. It takes as long as the network does,
    /// and takes place even if the caller does not wait for it.
    ///
    /// # Errors
    /// [`Stale`] if a later grant was there before.
    pub async fn advance_and_read(&self, by: &Visitor) -> Result<u64, Stale> {
        self.visit(by, Work::Advance).await.map_err(|_| Stale)
    }

    /// Reads what is there, for a grant that the store was sealed with.
    ///
    /// # Errors
    /// None but that of a store that is gone.
    pub async fn read(&self, by: &Visitor) -> Result<u64, Stale> {
        self.visit(by, Work::Read).await.map_err(|_| Stale)
    }

    /// Writes a new version of `read`, and says which.
    ///
    /// # Errors
    /// [`Stale`] if a later grant was there before.
    pub async fn write(&self, by: &Visitor, read: u64) -> Result<u64, Stale> {
        let written = self.visit(by, Work::Write { read }).await;
        written.map_err(|_| Stale)
    }

    /// Serves no visitor for this long; they wait.
    pub fn hang(&self, lasts: Duration) {
        let closed = Closed::of(&self.shared);
        drop(tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            drop(closed);
        }));
    }

    /// Its answers take this much longer from now on.
    pub fn answer_late(&self, by: Duration) {
        *lock(&self.shared.late) = by;
    }

    /// Keeps a copy in the place of the one before.
    pub fn copy(&self) {
        let mut state = lock(&self.shared.state);
        state.copy = Copied {
            mark: state.guard.mark(),
            version: state.version,
        };
    }

    /// Sets it back to its copy, as the contract has it: it serves no visitor until its mark is
    /// advanced to the newest floor of its lease, which `floor` asks for. Without a floor nothing
    /// is done.
    pub async fn restore(&self, floor: impl Future<Output = Option<FencingToken>>) {
        let shared = &self.shared;
        let _closed = Closed::of(shared);
        let Some(floor) = floor.await else { return };
        let mut state = lock(&shared.state);
        let Copied { mark, version } = state.copy;
        state.guard = guard(&shared.lease);
        state.version = version;
        [mark, Some(floor)]
            .into_iter()
            .flatten()
            .for_each(|token| state.guard.advance_to(token));
        let restored = StoreRestored {
            store: shared.name.clone(),
            mark: state.guard.mark().map_or(0, FencingToken::get),
            version,
        };
        shared.recorder.see(Observation::StoreRestored(restored));
    }

    async fn visit(&self, by: &Visitor, work: Work) -> Result<u64, Option<Refused>> {
        let (store, by) = (self.clone(), by.clone());
        // On its own: what was sent arrives, whatever becomes of the sender.
        let visiting = tokio::spawn(async move {
            let shared = &store.shared;
            let net = shared.world.net();
            let (here, there) = (by.machine.id(), shared.machine.id());
            net.travel(here, there).await;
            let mut closed = shared.closed.subscribe();
            // The sender lives as long as the store.
            closed
                .wait_for(|reasons| *reasons == 0)
                .await
                .map(drop)
                .ok();
            let done = shared.work(&by, work);
            let late = *lock(&shared.late);
            if !late.is_zero() {
                tokio::time::sleep(late).await;
            }
            net.travel(there, here).await;
            done
        });
        visiting.await.map_err(|_| None)?.map_err(Some)
    }
}

fn guard(lease: &LeaseName) -> Guard {
    // Tokens follow the simulated clocks, and the ceiling would follow the real one.
    Guard::new(lease.clone()).ceiling(Ceiling::Off)
}

impl Closed {
    fn of(shared: &Arc<Shared>) -> Self {
        shared.closed.send_modify(|reasons| *reasons += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.closed.send_modify(|reasons| *reasons -= 1);
    }
}

/// A store as a client seals it.
pub struct SealedStore {
    /// The store.
    pub store: Store,
    /// The number of the client.
    pub client: u32,
    /// Its machine.
    pub machine: Machine,
}

impl Sealable for SealedStore {
    fn label(&self) -> &str {
        self.store.name()
    }

    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a> {
        let by = Visitor {
            client: self.client,
            machine: self.machine.clone(),
            fence: fence.clone(),
        };
        Box::pin(async move {
            match self.store.visit(&by, Work::Advance).await {
                Ok(_) if self.store.shared.lossy => SealAnswer::NotDurable {
                    why: "its replica lags".to_owned(),
                },
                Ok(_) => SealAnswer::Durable,
                Err(Some(refused)) => SealAnswer::Refused(refused),
                Err(None) => SealAnswer::Failed {
                    why: "it is gone".to_owned(),
                },
            }
        })
    }
}

/// Who comes to a store.
#[derive(Clone)]
pub struct Visitor {
    client: u32,
    machine: Machine,
    fence: Fence,
}

impl Visitor {
    /// The holder of a lease.
    #[must_use]
    pub fn with(client: u32, machine: &Machine, lease: &HeldLease) -> Self {
        let fence = lease.fence();
        Self {
            client,
            machine: machine.clone(),
            fence,
        }
    }

    /// The name and the token that it shows.
    #[must_use]
    pub fn fence(&self) -> (LeaseName, FencingToken) {
        (self.fence.name.clone(), self.fence.token)
    }
}

#[derive(Clone, Copy)]
enum Work {
    Advance,
    Read,
    Write { read: u64 },
}

impl Shared {
    fn work(&self, by: &Visitor, work: Work) -> Result<u64, Refused> {
        let mut locked = lock(&self.state);
        let state = &mut *locked;
        let (admitted, act) = match work {
            Work::Read => return Ok(state.version),
            Work::Advance => (state.guard.advance(&by.fence).map(drop), Act::Advance),
            Work::Write { read } => {
                let wrote = state.last + 1;
                let (version, last) = (&mut state.version, &mut state.last);
                let effect = || {
                    *version = wrote;
                    *last = wrote;
                };
                let admitted = state.guard.with(&by.fence, effect).map(drop);
                (admitted, Act::Write { read, wrote })
            }
        };
        let version = state.version;
        let shown = admitted.as_ref().map_err(|refused| match refused {
            Refused::StaleToken { mark, .. } => Some(mark.get()),
            _ => None,
        });
        self.recorder.see(Observation::Guard(Visit {
            store: self.name.clone(),
            lease: self.lease.to_string(),
            client: by.client,
            shown: by.fence.name.to_string(),
            token: by.fence.token.get(),
            act,
            admitted: shown.copied(),
        }));
        admitted.map(|()| version)
    }
}
