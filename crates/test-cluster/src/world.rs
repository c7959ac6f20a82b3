//! The world of a test: the cluster, its clients, and the faults.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use ringfence_client::sim::{Host, Resident};
use ringfence_client::{Client, HeldLease, LeaseName};
use ringfence_core::{Command, Revoke};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::chance::Chance;
use crate::cluster::Cluster;
use crate::flag::Flag;
use crate::lock::lock;
use crate::network::{self, Nodes, Way};
use crate::process::{Process, TestClient, WorldClock};
use crate::store::{Audit, GuardedStore, UnguardedStore};
use crate::story::Story;

/// How many nodes a cluster has: as many as survive the loss of one.
const NODES: usize = 3;
/// A leader that was killed is missed, and another one elected, after 300 ms to this time.
const ELECTION_MAX_MS: u64 = 900;
/// A node that was killed is back after this time.
const RESTART: Duration = Duration::from_secs(2);
/// How often a fault that has to wait for its effect looks for it.
const LOOK: Duration = Duration::from_millis(10);

/// A cluster, its clients and their stores in one test, in virtual time; see the
/// [crate](crate). Clones are the same world.
///
/// It lives on a single-threaded tokio runtime with a paused clock: `#[tokio::test(start_paused =
/// true)]`, or [`explore`](crate::explore()). Equal seeds make equal worlds.
#[derive(Clone)]
pub struct TestCluster {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    seed: u64,
    /// Whether the caller of the scenario prints the story.
    explored: bool,
    begun: Instant,
    pub(crate) nodes: Arc<Nodes>,
    /// Those whose clients are gone are no longer there.
    processes: Mutex<Vec<Weak<Process>>>,
    audits: Mutex<Vec<Arc<dyn Audit>>>,
    /// The first panic of a process.
    failure: Mutex<Option<String>>,
    thief: tokio::sync::Mutex<Option<TestClient>>,
    /// What clients do in tasks of no process has its chance of this world, too.
    _resident: Resident,
}

impl TestCluster {
    /// A formed cluster of three nodes, without clients. All its chance comes from `seed`.
    ///
    /// # Panics
    /// If the runtime's clock is not paused: nothing would repeat, and a test would take as long as
    /// the leases do.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(seed, false)
    }

    pub(crate) fn with(seed: u64, explored: bool) -> Self {
        let begun = now();
        assert!(
            is_paused(begun),
            "TestCluster::new outside of a paused clock: write \
             #[tokio::test(start_paused = true)], or use `explore`"
        );
        let chance = Chance::new(seed);
        let residence = Host::new(Handle::current(), chance.draw());
        let story = Story::begin(begun);
        let name = (u128::from(chance.draw()) << 64 | u128::from(chance.draw())).to_be_bytes();
        let cluster = Cluster::form(name, story);
        drop(tokio::spawn(cluster.clone().keep_time()));
        let up = (0..NODES).map(|_| Arc::new(Flag::new(true))).collect();
        let resident = residence.reside();
        Self {
            inner: Arc::new(Inner {
                seed,
                explored,
                begun,
                nodes: Arc::new(Nodes {
                    up,
                    chance,
                    cluster,
                    stale: Notify::new(),
                }),
                processes: Mutex::default(),
                audits: Mutex::default(),
                failure: Mutex::default(),
                thief: tokio::sync::Mutex::default(),
                _resident: resident,
            }),
        }
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.inner.nodes.cluster
    }

    /// A number from this world's chance, below `end`.
    pub(crate) fn draw(&self, end: u64) -> u64 {
        self.inner.nodes.chance.below(end)
    }

    pub(crate) fn processes(&self) -> Vec<Arc<Process>> {
        let mut processes = lock(&self.inner.processes);
        processes.retain(|process| process.strong_count() > 0);
        processes.iter().filter_map(Weak::upgrade).collect()
    }

    /// A client in a process of its own, connected. `name` stands for it in stories.
    pub async fn client(&self, name: &str) -> TestClient {
        let chance = self.inner.nodes.chance.fork();
        let host = Host::new(Handle::current(), chance.draw());
        let story = self.cluster().story.clone();
        let process = Arc::new(Process::new(name, host, chance, story));
        lock(&self.inner.processes).push(Arc::downgrade(&process));
        let builder = Client::builder()
            .endpoints((0..NODES).map(network::address))
            .clock(Arc::new(WorldClock(self.inner.begun)));
        let way = Way {
            nodes: self.inner.nodes.clone(),
            process: process.clone(),
        };
        let connecting = builder.simulated(process.host.clone(), Arc::new(way));
        let connected = process.host.spawn(connecting.connect());
        let client = match connected.await {
            Ok(Ok(client)) => client,
            other => panic!("{name} cannot connect: {other:?}"),
        };
        TestClient { client, process }
    }

    /// Runs a part of a service in the client's process: a pause stops it where it stands. The
    /// service is written as always; tasks that it starts with `tokio::spawn` are stopped at their
    /// next call of the client or of a store of this world.
    ///
    /// A panic in it fails [`explore`](crate::explore()), also if no test awaits the handle.
    pub fn spawn<F>(&self, client: &TestClient, service: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let inner = Arc::downgrade(&self.inner);
        let name = client.process.name.clone();
        client.process.host.spawn(async move {
            let service = std::panic::AssertUnwindSafe(service);
            match service.catch_unwind().await {
                Ok(output) => output,
                Err(panic) => {
                    let said = format!("{name} panicked: {}", message_of(&*panic));
                    if let Some(inner) = inner.upgrade() {
                        lock(&inner.failure).get_or_insert(said);
                    }
                    std::panic::resume_unwind(panic)
                }
            }
        })
    }

    /// Stops the client's process where it stands, as SIGSTOP does. Time goes on.
    pub fn pause(&self, client: &TestClient) {
        client.process.pause();
    }

    /// Lets a paused process go on.
    pub fn resume(&self, client: &TestClient) {
        client.process.resume();
    }

    /// Pauses the process when the answer to its next call of a store arrives: between a read and
    /// the write that builds on it.
    pub fn pause_at_next_store_answer(&self, client: &TestClient) {
        client.process.ambush();
    }

    /// Holds the client's next call of a store up in the network: it arrives this much later, also
    /// if its process has given it up by then.
    pub fn delay_next_store_call(&self, client: &TestClient, by: Duration) {
        client.process.delay(0, by);
    }

    /// Cuts the client's way to all nodes. What is under way arrives after [`heal`](Self::heal).
    /// Stores can still be reached.
    pub fn cut(&self, client: &TestClient) {
        client.process.cut(true);
    }

    /// Mends what [`cut`](Self::cut) has cut.
    pub fn heal(&self, client: &TestClient) {
        client.process.cut(false);
    }

    /// Lets the client's sessions run out at the cluster: its way there is cut until they have
    /// ended, which takes up to their TTL and a second. The client's own windows end before.
    pub async fn expire(&self, client: &TestClient) {
        // Also if it is dropped.
        let _healed = Heal(&client.process);
        let name = client.name();
        while !self.cluster().sessions_of(name).is_empty() {
            // Again: other faults may have healed it.
            self.cut(client);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends the grant of a lease as an operator does; returns whether there was one. The next grant
    /// waits until the old holder knows, or one TTL.
    ///
    /// # Panics
    /// If `name` is no name of a lease.
    pub fn revoke(&self, name: &str) -> bool {
        self.revoke_with(name, false)
    }

    /// The same with `--now`: the next grant waits for nothing, so that for a while two clients
    /// believe that they hold the lease. That one holder believes at a time is not promised then;
    /// guards are.
    ///
    /// # Panics
    /// If `name` is no name of a lease.
    pub fn revoke_now(&self, name: &str) -> bool {
        self.revoke_with(name, true)
    }

    fn revoke_with(&self, name: &str, now: bool) -> bool {
        let name = parsed(name);
        let lease = self.cluster().read(|machine| machine.get(&name));
        let Some(holder) = lease.and_then(|lease| lease.holder) else {
            return false;
        };
        let revoke = Revoke {
            name,
            token: holder.token,
            now,
            reason: "a test".to_owned(),
            operator: "test".to_owned(),
        };
        self.cluster()
            .apply(Command::Revoke(revoke), None)
            .is_some()
    }

    /// Takes a lease away for another session, that of a client called `thief`: the holder is
    /// revoked without a wait, and so is every client that is queued before the thief.
    ///
    /// # Panics
    /// If `name` is no name of a lease.
    pub async fn steal(&self, name: &str) -> HeldLease {
        let thief = self.thief().await;
        let taken = parsed(name);
        let held = thief.process.host.spawn({
            let locking = thief.client.lock(name);
            async move { locking.await }
        });
        loop {
            let holder = self.cluster().read(|machine| {
                let lease = machine.get(&taken)?;
                // Not before the thief waits: another one could come between.
                let contended = lease.waiters > 0;
                lease.holder.filter(|_| contended)
            });
            if held.is_finished() {
                break;
            }
            let thieves = self.cluster().sessions_of(thief.name());
            if holder.is_some_and(|holder| !thieves.contains(&holder.session)) {
                self.revoke_now(name);
            }
            tokio::time::sleep(LOOK).await;
        }
        match held.await {
            Ok(Ok(lease)) => lease,
            other => panic!("the thief did not get {name}: {other:?}"),
        }
    }

    async fn thief(&self) -> TestClient {
        let mut thief = self.inner.thief.lock().await;
        match &*thief {
            Some(thief) => thief.clone(),
            None => thief.insert(self.client("thief").await).clone(),
        }
    }

    /// Kills the node that leads: its streams break, requests under way are lost before or after
    /// they took effect, another node leads after 0.3 s to 0.9 s in which nothing is applied, and the
    /// killed one is back after 2 s. Without a leader it does nothing.
    pub fn kill_leader(&self) {
        let Some(leader) = self.cluster().leader() else {
            return;
        };
        let story = &self.cluster().story;
        story.say(format_args!("n{}, which leads, is killed", leader + 1));
        self.inner.nodes.up[leader].set(false);
        self.cluster().depose();
        let nodes = self.inner.nodes.clone();
        let election = Duration::from_millis(300 + self.draw(ELECTION_MAX_MS - 300));
        drop(tokio::spawn(async move {
            tokio::time::sleep(election).await;
            let is_up = |node: &usize| nodes.up[*node].get();
            // A majority elects.
            while (0..NODES).filter(is_up).count() <= NODES / 2 {
                tokio::time::sleep(LOOK).await;
            }
            let next = (1..NODES).map(|step| (leader + step) % NODES).find(is_up);
            nodes.cluster.lead(next.expect("a majority is up"));
        }));
        let nodes = self.inner.nodes.clone();
        drop(tokio::spawn(async move {
            tokio::time::sleep(RESTART).await;
            nodes.up[leader].set(true);
        }));
    }

    /// A store in memory behind the real guard of `ringfence-guard`, bound to a lease.
    ///
    /// # Panics
    /// If `lease` is no name of a lease.
    pub fn guarded_store<T>(&self, lease: &str, value: T) -> GuardedStore<T>
    where
        T: Clone + fmt::Debug + Send + 'static,
    {
        let store = GuardedStore::new(self.inner.nodes.clone(), parsed(lease), value);
        lock(&self.inner.audits).push(store.audit());
        store
    }

    /// A store in memory that admits every write, and notes which of them a guard would have
    /// refused.
    ///
    /// # Panics
    /// If `lease` is no name of a lease.
    pub fn unguarded_store<T>(&self, lease: &str, value: T) -> UnguardedStore<T>
    where
        T: Clone + fmt::Debug + Send + 'static,
    {
        let store = UnguardedStore::new(self.inner.nodes.clone(), parsed(lease), value);
        lock(&self.inner.audits).push(store.audit());
        store
    }

    /// Asserts that no store of this world has taken a stale write: one under a smaller token than
    /// that of a client which had read or written before, under no token or one of another lease, or
    /// of a connection that read before another process wrote ([`Stale`](crate::Stale)).
    ///
    /// # Panics
    /// If one has: with the write, the seed and the story.
    #[track_caller]
    pub fn assert_no_stale_write(&self) {
        let audits = lock(&self.inner.audits).clone();
        let stale: Vec<String> = audits.iter().flat_map(|audit| audit.stale()).collect();
        if let [first, ..] = &stale[..] {
            let (count, seed) = (stale.len(), self.inner.seed);
            let said =
                format!("{count} stale write(s) in the world of seed {seed}, the first: {first}");
            match self.inner.explored {
                true => panic!("{said}"),
                false => panic!("{said}\n{}", self.cluster().story),
            }
        }
    }

    /// What happened so far: one line for each grant, end, fault, read and write, with its virtual
    /// time; the newest 10,000 lines.
    #[must_use]
    pub fn story(&self) -> String {
        self.cluster().story.to_string()
    }

    /// Adds a line to the story.
    pub fn say(&self, what: impl fmt::Display) {
        self.cluster().story.say(what);
    }

    /// The first panic of a process.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.inner.failure).clone()
    }

    /// Ends all processes: nothing that they would do at their end is done.
    pub(crate) fn end(&self) {
        self.processes().iter().for_each(|one| one.host.kill());
    }
}

impl fmt::Debug for TestCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TestCluster(seed: {})", self.inner.seed)
    }
}

/// Mends a link when it is dropped.
struct Heal<'a>(&'a Process);

impl Drop for Heal<'_> {
    fn drop(&mut self) {
        self.0.cut(false);
    }
}

#[track_caller]
fn parsed(name: &str) -> LeaseName {
    match LeaseName::parse(name) {
        Ok(name) => name,
        Err(invalid) => panic!("`{name}` is no name of a lease: {invalid}"),
    }
}

pub(crate) fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

#[expect(
    clippy::disallowed_methods,
    reason = "virtual time is what is simulated here"
)]
fn now() -> Instant {
    Instant::now()
}

/// Whether the clock stands still between two looks: a running one counts nanoseconds.
fn is_paused(begun: Instant) -> bool {
    (0..1_000).all(|_| now() == begun)
}
