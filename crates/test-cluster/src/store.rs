//! Stores in memory for the services under test. A call takes its time both ways, and its process
//! can be paused before the answer is looked at.

use std::fmt;
use std::sync::{Arc, Mutex};

use ringfence_client::{Fence, FencingToken, LeaseName};
use ringfence_guard::{Guard, Refused, Sealable};
use tokio::sync::oneshot;

use crate::chance::Chance;
use crate::lock::lock;
use crate::network::Nodes;
use crate::process::{Process, TestClient};

/// Either way of a call of a store takes 1 ms to this long.
const TRAVEL_MAX_MS: u64 = 10;
/// The most stale writes that a store notes; later ones are only counted by the story.
const STALE_WRITES_MAX: usize = 1_000;

/// A write that a guard would have refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleWrite {
    /// The process that wrote.
    pub writer: String,
    /// The token it wrote under; `None`: it was never granted the lease.
    pub token: Option<FencingToken>,
    /// The greatest token that the store had seen by then.
    pub seen: FencingToken,
    /// What it wrote, as `Debug` shows it.
    pub value: String,
}

impl fmt::Display for StaleWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writer,
            token,
            seen,
            value,
        } = self;
        match token {
            Some(token) => write!(f, "{writer} wrote {value} under token {token}")?,
            None => write!(f, "{writer} wrote {value} under no token")?,
        }
        write!(f, ", when the store had seen token {seen}")
    }
}

/// What the world asks each store at the end.
pub(crate) trait Audit: Send + Sync {
    fn stale(&self) -> Vec<String>;
}

/// The data, and what its readers and writers showed.
struct Data<T> {
    value: T,
    seen: Option<FencingToken>,
    stale: Vec<StaleWrite>,
}

struct Shared<T> {
    nodes: Arc<Nodes>,
    lease: LeaseName,
    data: Mutex<Data<T>>,
}

impl<T: Clone + fmt::Debug + Send + 'static> Shared<T> {
    fn new(nodes: Arc<Nodes>, lease: LeaseName, value: T) -> Arc<Self> {
        Arc::new(Self {
            nodes,
            lease,
            data: Mutex::new(Data {
                value,
                seen: None,
                stale: Vec::new(),
            }),
        })
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        self.nodes.cluster.story.say(what);
    }

    /// A token has shown itself.
    fn see(&self, token: Option<FencingToken>) {
        let mut data = lock(&self.data);
        data.seen = data.seen.max(token);
    }

    fn read(&self, reader: &str, token: Option<FencingToken>) -> T {
        self.see(token);
        let value = lock(&self.data).value.clone();
        self.say(format_args!("{reader} reads {value:?}"));
        value
    }

    /// Writes, whatever was seen before, and notes it if a guard would not have.
    fn write(&self, writer: &str, token: Option<FencingToken>, value: T) {
        let mut data = lock(&self.data);
        let under = token.map_or("no token".to_owned(), |token| format!("token {token}"));
        match data.seen.filter(|seen| token < Some(*seen)) {
            None => self.say(format_args!("{writer} writes {value:?} under {under}")),
            Some(seen) => {
                let newer = self.nodes.cluster.owner(seen).unwrap_or_default();
                let lost = &data.value;
                self.say(format_args!(
                    "{writer} writes {value:?} over {lost:?} under {under}: STALE, {newer} was \
                     here with token {seen}"
                ));
                self.nodes.stale.notify_waiters();
                if data.stale.len() < STALE_WRITES_MAX {
                    data.stale.push(StaleWrite {
                        writer: writer.to_owned(),
                        token,
                        seen,
                        value: format!("{value:?}"),
                    });
                }
            }
        }
        data.seen = data.seen.max(token);
        data.value = value;
    }
}

impl<T: Send> Audit for Shared<T> {
    fn stale(&self) -> Vec<String> {
        let data = lock(&self.data);
        data.stale.iter().map(ToString::to_string).collect()
    }
}

/// One process's connection to a store.
#[derive(Clone)]
struct Line<T> {
    shared: Arc<Shared<T>>,
    process: Arc<Process>,
    chance: Arc<Chance>,
}

impl<T: Clone + fmt::Debug + Send + 'static> Line<T> {
    /// A call: what was sent arrives, also if its process is paused or gone by then.
    async fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared<T>, &str) -> R + Send + 'static,
    ) -> R {
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
            let done = work(&line.shared, &line.process.name);
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
        lock(&self.shared.data).value.clone()
    }

    /// The writes that a guard would have refused, in order; the first 1,000.
    #[must_use]
    pub fn stale_writes(&self) -> Vec<StaleWrite> {
        lock(&self.shared.data).stale.clone()
    }
}

impl<T: Clone + fmt::Debug + Send + 'static> Unguarded<T> {
    /// Reads what is stored. Takes 2 ms to 20 ms, as every call.
    pub async fn read(&self) -> T {
        let token = self.0.token();
        self.0
            .call(move |shared, name| shared.read(name, token))
            .await
    }

    /// Writes. The write counts as one under the newest token that this client's process was
    /// granted when it sent it.
    pub async fn write(&self, value: T) {
        let token = self.0.token();
        self.0
            .call(move |shared, name| shared.write(name, token, value))
            .await;
    }

    /// Writes under this fence, which is noted and not checked.
    pub async fn write_under(&self, fence: &Fence, value: T) {
        let token = Some(fence.token);
        self.0
            .call(move |shared, name| shared.write(name, token, value))
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
        lock(&self.shared.data).value.clone()
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
        self.admit(fence, |shared, name, token| {
            shared.see(Some(token));
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
        self.line
            .call(move |shared, name| shared.read(name, token))
            .await
    }

    /// Writes if the guard admits the fence.
    ///
    /// # Errors
    /// What the guard refuses it with; nothing is written then.
    pub async fn write(&self, fence: &Fence, value: T) -> Result<(), Refused> {
        self.admit(fence, move |shared, name, token| {
            shared.write(name, Some(token), value);
        })
        .await
    }

    async fn admit(
        &self,
        fence: &Fence,
        work: impl FnOnce(&Shared<T>, &str, FencingToken) + Send + 'static,
    ) -> Result<(), Refused> {
        let (guard, fence) = (self.guard.clone(), fence.clone());
        self.line
            .call(move |shared, name| {
                let done = guard.with(&fence, || work(shared, name, fence.token));
                if let Err(refused) = &done {
                    shared.say(format_args!("{name} is refused: {refused}"));
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
    }
}
