//! Guarded stores: the real guard in memory, before a value that each write replaces by a new
//! version of what it has read.

use std::sync::{Arc, Mutex};

use ringfence_client::HeldLease;
use ringfence_core::{FencingToken, LeaseName};
use ringfence_guard::{Ceiling, Fence, Guard, Refused};

use crate::lock::lock;
use crate::machine::Machine;
use crate::observe::{Act, Observation, Recorder, Visit};
use crate::world::World;

/// The store that a lease protects. Clones are the same store.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    world: World,
    machine: Machine,
    recorder: Recorder,
    guard: Guard,
    state: Mutex<State>,
}

/// The data: the version that was written last, and a number for the next one.
#[derive(Default)]
struct State {
    version: u64,
    last: u64,
}

/// A write that was refused: the grant is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

impl Store {
    /// A store for `lease` on a machine of its own.
    #[must_use]
    pub fn new(world: &World, lease: &LeaseName, recorder: &Recorder) -> Self {
        let name = format!("store-{lease}");
        Self {
            shared: Arc::new(Shared {
                machine: world.machine(&name),
                name,
                world: world.clone(),
                recorder: recorder.clone(),
                // Tokens follow the simulated clocks, and the ceiling would follow the real one.
                guard: Guard::new(lease.clone()).ceiling(Ceiling::Off),
                state: Mutex::default(),
            }),
        }
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
        self.visit(by, Work::Advance).await
    }

    /// Writes a new version of `read`, and says which.
    ///
    /// # Errors
    /// [`Stale`] if a later grant was there before.
    pub async fn write(&self, by: &Visitor, read: u64) -> Result<u64, Stale> {
        self.visit(by, Work::Write { read }).await
    }

    async fn visit(&self, by: &Visitor, work: Work) -> Result<u64, Stale> {
        let (store, by) = (self.clone(), by.clone());
        // On its own: what was sent arrives, whatever becomes of the sender.
        let visiting = tokio::spawn(async move {
            let net = store.shared.world.net();
            let (here, there) = (by.machine.id(), store.shared.machine.id());
            net.travel(here, there).await;
            let done = store.shared.work(&by, work);
            net.travel(there, here).await;
            done
        });
        visiting.await.unwrap_or(Err(Stale))
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
    Write { read: u64 },
}

impl Shared {
    fn work(&self, by: &Visitor, work: Work) -> Result<u64, Stale> {
        let mut state = lock(&self.state);
        let (admitted, act) = match work {
            Work::Advance => (self.guard.advance(&by.fence).map(drop), Act::Advance),
            Work::Write { read } => {
                let wrote = state.last + 1;
                let effect = || {
                    state.version = wrote;
                    state.last = wrote;
                };
                let admitted = self.guard.with(&by.fence, effect).map(drop);
                (admitted, Act::Write { read, wrote })
            }
        };
        let version = state.version;
        let admitted = admitted.map_err(|refused| match refused {
            Refused::StaleToken { mark, .. } => Some(mark.get()),
            _ => None,
        });
        self.recorder.see(Observation::Guard(Visit {
            store: self.name.clone(),
            lease: self.guard.name().to_string(),
            client: by.client,
            shown: by.fence.name.to_string(),
            token: by.fence.token.get(),
            act,
            admitted,
        }));
        admitted.map(|()| version).map_err(|_| Stale)
    }
}
