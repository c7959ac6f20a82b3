//! Stores in memory for the services under test. A call takes its time both ways, and its process
//! can be paused before the answer is looked at.

use std::fmt;
use std::sync::{Arc, Mutex};

use ringfence_client::{Fence, FencingToken, LeaseName};
use ringfence_guard::{Guard, Refused, Sealable};
use tokio::sync::oneshot;

use crate::chance::Chance;
use crate::ledger::{Ledger, Stale, StaleWrite, Version};
use crate::lock::lock;
use crate::network::Nodes;
use crate::process::{Process, TestClient};

/// Either way of a call of a store takes 1 ms to this long.
const TRAVEL_MAX_MS: u64 = 10;
/// What the world asks each store at the end.
pub(crate) trait Audit: Send + Sync {
    fn stale(&self) -> Vec<String>;
}

struct Shared<T> {
    nodes: Arc<Nodes>,
    lease: LeaseName,
    ledger: Mutex<Ledger<T>>,
}

impl<T: Clone + fmt::Debug + Send + 'static> Shared<T> {
    fn new(nodes: Arc<Nodes>, lease: LeaseName, value: T) -> Arc<Self> {
        Arc::new(Self {
            nodes,
            lease,
            ledger: Mutex::new(Ledger::new(value)),
        })
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        self.nodes.cluster.story.say(what);
    }
}

impl<T: Send> Audit for Shared<T> {
    fn stale(&self) -> Vec<String> {
        let ledger = lock(&self.ledger);
        ledger.stale.iter().map(ToString::to_string).collect()
    }
}

/// One process's connection to a store.
#[derive(Clone)]
struct Line<T> {
    shared: Arc<Shared<T>>,
    process: Arc<Process>,
    chance: Arc<Chance>,
    /// When it read last.
    since: Arc<Mutex<Option<Version>>>,
}

impl<T: Clone + fmt::Debug + Send + 'static> Line<T> {
    /// A call: what was sent arrives, also if its process is paused or gone by then.
    async fn call<R: Send + 'static>(&self, work: impl FnOnce(&Self) -> R + Send + 'static) -> R {
        let Self {
            process, chance, ..
        } = self;
        process.runs().await;
        let (there, back) = (chance.time(TRAVEL_MAX_MS), chance.time(TRAVEL_MAX_MS));
        let there = there + process.take_delay();
        let (tell, answer) = oneshot::channel();
        let line = self.clone();
        drop(tokio::spawn(async move {
            tokio::time::sleep(there).await;
            let done = work(&line);
            tokio::time::sleep(back).await;
            line.process.reached();
            tell.send(done).ok();
        }));
        let Ok(answer) = answer.await else {
            // The runtime is being shut down.
            std::future::pending().await
        };
        process.runs().await;
        answer
    }

    /// At the store: reads.
    fn read(&self, token: Option<FencingToken>) -> T {
        let mut ledger = lock(&self.shared.ledger);
        ledger.see(token);
        *lock(&self.since) = Some(ledger.version());
        let (reader, value) = (&self.process.name, ledger.value.clone());
        self.shared.say(format_args!("{reader} reads {value:?}"));
        value
    }

    /// At the store: writes, whatever was seen before, and notes what is wrong with it.
    fn write(&self, token: Option<FencingToken>, other: Option<LeaseName>, value: T) {
        let Self {
            shared, process, ..
        } = self;
        let (mut ledger, writer) = (lock(&shared.ledger), &process.name);
        let since = *lock(&self.since);
        let why = match other {
            Some(name) => Some(Stale::OtherLease(name)),
            None => ledger.judge(writer, token, since),
        };
        let under = token.map_or("no token".to_owned(), |token| format!("token {token}"));
        match &why {
            None => shared.say(format_args!("{writer} writes {value:?} under {under}")),
            Some(why) => {
                let old = &ledger.value;
                let newer = match why {
                    Stale::Seen(seen) => {
                        let newer = shared.nodes.cluster.owner(*seen).unwrap_or_default();
                        format!("{newer} was here with token {seen}")
                    }
                    other => other.to_string(),
                };
                shared.say(format_args!(
                    "{writer} writes {value:?} over {old:?} under {under}: STALE, {newer}"
                ));
                shared.nodes.stale.notify_waiters();
            }
        }
        ledger.write(writer, token, why, value);
        // It knows what it wrote itself.
        if since.is_some() {
            *lock(&self.since) = Some(ledger.version());
        }
    }

    /// The newest token of the process: what it works under, if it shows none.
    fn token(&self) -> Option<FencingToken> {
        let cluster = &self.shared.nodes.cluster;
        cluster.newest(&self.shared.lease, &self.process.name)
    }
}

/// A store that admits every write; see [`TestCluster::unguarded_store`](crate::TestCluster::unguarded_store).
#[derive(Clone)]
pub struct UnguardedStore<T> {
    shared: Arc<Shared<T>>,
}

/// A client's connection to an [`UnguardedStore`]. Clones are the same connection.
#[derive(Clone)]
pub struct Unguarded<T>(Line<T>);

impl<T: Clone + fmt::Debug + Send + 'static> UnguardedStore<T> {
    pub(crate) fn new(nodes: Arc<Nodes>, lease: LeaseName, value: T) -> Self {
        let shared = Shared::new(nodes, lease, value);
        Self { shared }
    }

    pub(crate) fn audit(&self) -> Arc<dyn Audit> {
        self.shared.clone()
    }

    /// A connection of this client's process.
    #[must_use]
    pub fn connect(&self, client: &TestClient) -> Unguarded<T> {
        Unguarded(line(&self.shared, client))
    }

    /// What is stored now.
    #[must_use]
    pub fn value(&self) -> T {
        lock(&self.shared.ledger).value.clone()
    }

    /// The writes that it must not have taken, in order; the first 1,000.
    #[must_use]
    pub fn stale_writes(&self) -> Vec<StaleWrite> {
        lock(&self.shared.ledger).stale.clone()
    }
}

impl<T: Clone + fmt::Debug + Send + 'static> Unguarded<T> {
    /// Reads what is stored. Takes 2 ms to 20 ms, as every call.
    pub async fn read(&self) -> T {
        let token = self.0.token();
        self.0.call(move |line| line.read(token)).await
    }

    /// Writes. The write counts as one under the newest token that this client's process was
    /// granted when it sent it.
    pub async fn write(&self, value: T) {
        let token = self.0.token();
        self.0
            .call(move |line| line.write(token, None, value))
            .await;
    }

    /// Writes under this fence, which is noted and not checked.
    pub async fn write_under(&self, fence: &Fence, value: T) {
        let (lease, token) = (fence.name.clone(), Some(fence.token));
        self.0
            .call(move |line| {
                let other = Some(lease).filter(|lease| *lease != line.shared.lease);
                line.write(token, other, value);
            })
            .await;
    }
}

/// A store behind a guard; see [`TestCluster::guarded_store`](crate::TestCluster::guarded_store).
#[derive(Clone)]
pub struct GuardedStore<T> {
    shared: Arc<Shared<T>>,
    guard: Arc<Guard>,
}

/// A client's connection to a [`GuardedStore`]. Clones are the same connection.
#[derive(Clone)]
pub struct Guarded<T> {
    line: Line<T>,
    guard: Arc<Guard>,
}

impl<T: Clone + fmt::Debug + Send + 'static> GuardedStore<T> {
    pub(crate) fn new(nodes: Arc<Nodes>, lease: LeaseName, value: T) -> Self {
        Self {
            guard: Arc::new(Guard::new(lease.clone())),
            shared: Shared::new(nodes, lease, value),
        }
    }

    pub(crate) fn audit(&self) -> Arc<dyn Audit> {
        self.shared.clone()
    }

    /// A connection of this client's process.
    #[must_use]
    pub fn connect(&self, client: &TestClient) -> Guarded<T> {
        Guarded {
            line: line(&self.shared, client),
            guard: self.guard.clone(),
        }
    }

    /// What is stored now.
    #[must_use]
    pub fn value(&self) -> T {
        lock(&self.shared.ledger).value.clone()
    }

    /// The guard, for a [`Seal`](ringfence_client::Seal).
    #[must_use]
    pub fn guard(&self) -> Arc<dyn Sealable> {
        self.guard.clone()
    }
}

impl<T: Clone + fmt::Debug + Send + 'static> Guarded<T> {
    /// Raises the guard's mark to this fence: to be called before the first read.
    ///
    /// # Errors
    /// What the guard refuses it with.
    pub async fn advance(&self, fence: &Fence) -> Result<(), Refused> {
        self.admit(fence, |line, token| {
            let (shared, name) = (&line.shared, &line.process.name);
            lock(&shared.ledger).see(Some(token));
            let lease = &shared.lease;
            shared.say(format_args!(
                "{name} advances the guard of {lease} to {token}"
            ));
        })
        .await
    }

    /// Reads what is stored. Takes 2 ms to 20 ms, as every call.
    pub async fn read(&self) -> T {
        let token = self.line.token();
        self.line.call(move |line| line.read(token)).await
    }

    /// Writes if the guard admits the fence.
    ///
    /// # Errors
    /// What the guard refuses it with; nothing is written then.
    pub async fn write(&self, fence: &Fence, value: T) -> Result<(), Refused> {
        self.admit(fence, move |line, token| {
            line.write(Some(token), None, value);
        })
        .await
    }

    async fn admit(
        &self,
        fence: &Fence,
        work: impl FnOnce(&Line<T>, FencingToken) + Send + 'static,
    ) -> Result<(), Refused> {
        let (guard, fence) = (self.guard.clone(), fence.clone());
        self.line
            .call(move |line| {
                let done = guard.with(&fence, || work(line, fence.token));
                if let Err(refused) = &done {
                    let name = &line.process.name;
                    line.shared
                        .say(format_args!("{name} is refused: {refused}"));
                }
                done
            })
            .await
    }
}

fn line<T>(shared: &Arc<Shared<T>>, client: &TestClient) -> Line<T> {
    Line {
        shared: shared.clone(),
        process: client.process.clone(),
        chance: Arc::new(shared.nodes.chance.fork()),
        since: Arc::default(),
    }
}
