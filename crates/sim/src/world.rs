//! Everything there is in a run.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_core::StateMachine;
use ringfence_raft::{Node, Role};
use tokio::sync::oneshot;

use crate::clock::MachineClock;
use crate::listener::Listener;
use crate::lock::lock;
use crate::machine::{Machine, MachineId};
use crate::net::Net;
use crate::node::{self, Context, SimNode};
use crate::random::Random;
use crate::setup::Setup;
use crate::timeline::Timeline;
use crate::trace::Trace;

/// 2027-01-01, in milliseconds since 1970: a wall clock that can be believed.
const WALL_MILLIS: u64 = 1_798_761_600_000;
/// How often a task that waits for the cluster looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Why a call brought no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// No process was there to take it: it had no effect.
    NotThere,
    /// The node ended before it answered.
    Unknown,
}

/// A run. Clones are the same run.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    setup: Setup,
    random: Random,
    net: Net,
    context: Context,
    machines: Mutex<Vec<Machine>>,
    nodes: Mutex<Vec<SimNode>>,
}

impl World {
    pub(crate) fn new(seed: u64, setup: Setup, listener: Arc<dyn Listener>, trace: Trace) -> Self {
        let random = Random::new(seed).fork("world");
        let timeline = Timeline::begin();
        let net = Net::new(timeline, random.fork("net"));
        let _detached = tokio::spawn(net.clone().watch());
        let first = setup.nodes;
        let world = Self {
            inner: Arc::new(Inner {
                setup,
                random,
                net,
                context: Context {
                    timeline,
                    trace,
                    listener,
                },
                machines: Mutex::default(),
                nodes: Mutex::default(),
            }),
        };
        for _ in 0..first {
            world.add_node();
        }
        world
    }

    /// The simulation's own time, since the run began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner.context.timeline.now()
    }

    /// A source of chance of its own for one purpose.
    #[must_use]
    pub fn random(&self, purpose: &str) -> Random {
        self.inner.random.fork(purpose)
    }

    /// Adds a line to the trace.
    pub fn trace(&self, what: fmt::Arguments<'_>) {
        self.inner.context.trace.line(self.now(), what);
    }

    /// The network.
    #[must_use]
    pub fn net(&self) -> &Net {
        &self.inner.net
    }

    /// The nodes, running or not.
    #[must_use]
    pub fn nodes(&self) -> Vec<SimNode> {
        lock(&self.inner.nodes).clone()
    }

    /// A node by its number.
    ///
    /// # Panics
    /// If there is none of this number.
    #[must_use]
    pub fn node(&self, index: usize) -> SimNode {
        let nodes = lock(&self.inner.nodes);
        nodes.get(index).expect("a node of this number").clone()
    }

    /// All machines, in the order in which they came.
    #[must_use]
    pub fn machines(&self) -> Vec<Machine> {
        lock(&self.inner.machines).clone()
    }

    /// One more node, with an empty disk and not started. It asks the first members to let it join.
    pub fn add_node(&self) -> SimNode {
        let index = lock(&self.inner.nodes).len();
        let machine = self.machine(&node::name(index));
        let member = |index| (node::name(index), node::peer_address(index).to_string());
        let first = (0..self.inner.setup.nodes).map(member).collect();
        let (setup, context) = (self.inner.setup.clone(), self.inner.context.clone());
        let node = SimNode::new(index, machine, setup, first, context);
        lock(&self.inner.nodes).push(node.clone());
        node
    }

    /// One more machine, for a client or a store. Its clocks were set some time ago, so that no
    /// two machines show the same.
    pub fn machine(&self, name: &str) -> Machine {
        let random = self.inner.random.fork(name);
        let mut clocks = random.fork("clocks");
        let up = clocks.time(Duration::from_secs(60)..Duration::from_secs(86_400));
        let id = {
            let machines = lock(&self.inner.machines);
            MachineId(machines.len())
        };
        let clock = MachineClock::new(up, WALL_MILLIS + clocks.within(0..400));
        let timeline = self.inner.context.timeline;
        let net = Arc::new(self.inner.net.clone());
        let machine = Machine::new(id, name, timeline, net, clock, random);
        lock(&self.inner.machines).push(machine.clone());
        machine
    }

    /// Starts every first member and waits until one leads.
    ///
    /// # Panics
    /// If one of them does not start.
    pub async fn form(&self) -> usize {
        for node in self.nodes() {
            node.start().await.expect("an empty disk is enough");
        }
        self.leader_within(Duration::from_secs(60))
            .await
            .expect("nothing is broken yet")
    }

    /// Waits until a node leads and serves, at most this long.
    pub async fn leader_within(&self, limit: Duration) -> Option<usize> {
        let until = self.now() + limit;
        while self.now() < until {
            if let Some(leader) = self.leader() {
                return Some(leader);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        None
    }

    /// The node that leads in the newest term, as it knows itself.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        let mut newest = None;
        for node in self.nodes() {
            let Some(status) = self.status(&node) else {
                continue;
            };
            if status.role == Role::Leader && status.serving {
                newest = newest.max(Some((status.term, node.index())));
            }
        }
        newest.map(|(_, index)| index)
    }

    fn status(&self, node: &SimNode) -> Option<ringfence_raft::Status> {
        let handle = node.handle()?;
        Some(node.machine().visit(|| handle.status()))
    }

    /// Calls a node from a machine: `ask` runs in the node's process, and its answer comes back the
    /// same way. Both ways take as long as the links do, or for ever if they are cut for ever; the
    /// call arrives even if its caller has given it up meanwhile, and may arrive twice.
    ///
    /// # Errors
    /// [`Lost`] says what is known if there is no answer.
    pub async fn call<T, F, A>(&self, from: &Machine, to: usize, ask: F) -> Result<T, Lost>
    where
        F: Fn(Node) -> A + Send + Sync + 'static,
        A: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.call_what(from, to, SimNode::handle, ask).await
    }

    /// The same for what serves the node's clients.
    pub(crate) async fn call_services<T, F, A>(
        &self,
        from: &Machine,
        to: usize,
        ask: F,
    ) -> Result<T, Lost>
    where
        F: Fn(ringfence_services::Context) -> A + Send + Sync + 'static,
        A: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.call_what(from, to, SimNode::services, ask).await
    }

    async fn call_what<W, T, F, A>(
        &self,
        from: &Machine,
        to: usize,
        what: fn(&SimNode) -> Option<W>,
        ask: F,
    ) -> Result<T, Lost>
    where
        W: Send + 'static,
        F: Fn(W) -> A + Send + Sync + 'static,
        A: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let ask = Arc::new(ask);
        let to = self.node(to);
        if self.net().doubles(from.id(), to.machine().id()) {
            let doubled = self.clone().carry(from.id(), to.clone(), what, ask.clone());
            let _detached = tokio::spawn(doubled);
        }
        let (tell, answer) = oneshot::channel();
        let carried = self.clone().carry(from.id(), to, what, ask);
        let _detached = tokio::spawn(async move {
            // The caller may have gone.
            tell.send(carried.await).ok();
        });
        answer.await.unwrap_or(Err(Lost::Unknown))
    }

    async fn carry<W, T, F, A>(
        self,
        from: MachineId,
        to: SimNode,
        what: fn(&SimNode) -> Option<W>,
        ask: Arc<F>,
    ) -> Result<T, Lost>
    where
        W: Send + 'static,
        F: Fn(W) -> A + Send + Sync + 'static,
        A: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let there = to.machine().id();
        self.net().travel(from, there).await;
        let answer = match what(&to) {
            None => Err(Lost::NotThere),
            Some(what) => {
                let asked = to.machine().spawn(async move { ask(what).await });
                asked.await.map_err(|_| Lost::Unknown)
            }
        };
        self.net().travel(there, from).await;
        answer
    }

    /// What of the run is still held by something, to be asked when it is over.
    pub fn remains(&self) -> impl Fn() -> Vec<String> + use<> {
        let world = Arc::downgrade(&self.inner);
        let machines = self.machines();
        let machines = machines
            .iter()
            .map(|one| (one.name().to_owned(), Arc::downgrade(&one.inner)));
        let machines: Vec<_> = machines.collect();
        move || {
            let alive = machines.iter().filter(|(_, one)| one.strong_count() > 0);
            let alive = alive.map(|(name, _)| name.clone());
            let world = (world.strong_count() > 0).then(|| "the world".to_owned());
            world.into_iter().chain(alive).collect()
        }
    }

    /// Ends everything, in the order in which it came.
    pub(crate) fn end(&self) {
        for machine in self.machines() {
            machine.disk().crash(ringfence_wal::sim::Crash::ProcessOnly);
            machine.end_process(false);
        }
        // What is left refers to each other in circles.
        for node in std::mem::take(&mut *lock(&self.inner.nodes)) {
            node.forget();
        }
        self.inner.net.forget();
    }
}

/// A number over the whole of a state: equal states have equal ones.
#[must_use]
pub fn state_hash(machine: &StateMachine) -> u64 {
    let mut hash = Fnv::default();
    machine.records().for_each(|record| record.hash(&mut hash));
    hash.finish()
}

/// A number over a value: equal values have equal ones.
pub(crate) fn hash_of(value: impl Hash) -> u64 {
    let mut hash = Fnv::default();
    value.hash(&mut hash);
    hash.finish()
}

struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Hasher for Fnv {
    /// Eight bytes at a time: it sees whole states.
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.0 = (self.0 ^ u64::from_le_bytes(*word)).wrapping_mul(0x0000_0100_0000_01B3);
            self.0 ^= self.0 >> 29;
        }
        for byte in rest {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
