//! Who can be disturbed, and how a plan of faults is carried out and undone.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Fault, Scheduled, Who};
use crate::client::SimClient;
use crate::lock::lock;
use crate::machine::MachineId;
use crate::net::Weather;
use crate::node::{Crash, SNAPSHOT_DIR, SimNode};
use crate::observe::{Observation, Recorder, Violation};
use crate::workload::operator::Operator;
use crate::workload::{Work, session};
use crate::world::World;

/// How long a node may take to start on a whole disk.
const START_MAX: Duration = Duration::from_secs(30);

/// Everything a fault can touch. Clones are the same.
#[derive(Clone)]
pub struct Stage {
    pub(super) world: World,
    pub(super) clients: Arc<Vec<SimClient>>,
    pub(super) work: Arc<Work>,
    pub(super) recorder: Recorder,
    pub(super) operator: Operator,
    /// Nodes that are members no more.
    retired: Arc<Mutex<BTreeSet<usize>>>,
    /// Nodes that do not start before their disks are wiped.
    bereft: Arc<Mutex<BTreeSet<usize>>>,
}

impl Stage {
    /// A stage with these clients.
    #[must_use]
    pub fn new(
        world: &World,
        clients: Vec<SimClient>,
        work: &Arc<Work>,
        operator: &Operator,
        recorder: &Recorder,
    ) -> Self {
        Self {
            world: world.clone(),
            clients: Arc::new(clients),
            work: Arc::clone(work),
            recorder: recorder.clone(),
            operator: operator.clone(),
            retired: Arc::default(),
            bereft: Arc::default(),
        }
    }

    /// Carries out what of the plan stands before everything else.
    pub async fn begin(&self, plan: &[Scheduled]) {
        for (at, one) in plan.iter().enumerate() {
            if one.at.is_zero() {
                self.carry_out(at, one.clone()).await;
            }
        }
    }

    /// Carries the rest of the plan out. What still runs when this is dropped is left as it is: see
    /// [`Stage::heal`].
    pub async fn disturb(&self, plan: &[Scheduled]) {
        let mut running = JoinSet::new();
        let later = plan.iter().cloned().enumerate();
        for (at, one) in later.filter(|(_, one)| !one.at.is_zero()) {
            let stage = self.clone();
            running.spawn(async move {
                sleep(one.at.saturating_sub(stage.world.now())).await;
                stage.carry_out(at, one).await;
            });
        }
        while running.join_next().await.is_some() {}
    }

    async fn carry_out(&self, at: usize, one: Scheduled) {
        let Scheduled { lasts, fault, .. } = one.clone();
        self.world.trace(format_args!("{fault:?} for {lasts:?}"));
        self.recorder.see(Observation::FaultBegan { at, fault });
        self.make(one.fault, one.lasts).await;
        self.recorder.see(Observation::FaultEnded { at });
    }

    /// Undoes whatever was done, and starts every node that should be there.
    ///
    /// # Errors
    /// [`Violation`] if one of them does not start.
    pub async fn heal(&self) -> Result<(), Violation> {
        let net = self.world.net();
        net.heal_all();
        net.set_default_weather(Weather::default());
        for node in self.nodes() {
            let machine = node.machine();
            machine.resume();
            machine.set_clock_rate(0);
            machine.disk().limit(None);
            machine.disk().go_on();
            machine.disk().close(Path::new(SNAPSHOT_DIR), false);
        }
        self.wipe_the_bereft();
        for client in self.clients.iter() {
            client.resume();
            client.set_clock_rate(0);
            session::begin(client, &self.work);
        }
        for node in self.nodes() {
            // What was in the middle of a start when its fault was called off begins again.
            if !node.is_running() {
                node.crash(Crash::Kill);
            }
            let starting = tokio::time::timeout(START_MAX, self.start(&node)).await;
            let why = match starting {
                Ok(Ok(())) => continue,
                Ok(Err(why)) => why,
                Err(_) => "it takes too long".to_owned(),
            };
            let why = format!("n{} does not start: {why}", node.index());
            return Err(Violation::of("I18", why));
        }
        Ok(())
    }

    /// The same for a fault that is part of another one.
    pub(super) fn make_beside(&self, fault: Fault, lasts: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.make(fault, lasts))
    }

    async fn make(&self, fault: Fault, lasts: Duration) {
        match fault.row().as_bytes()[0] {
            b'N' => self.network(fault, lasts).await,
            b'P' => self.process(fault, lasts).await,
            b'C' => self.clocks(fault, lasts).await,
            b'D' | b'R' => self.disks(fault, lasts).await,
            _ => self.members(fault, lasts).await,
        }
    }

    /// The nodes that are not retired.
    pub(super) fn nodes(&self) -> Vec<SimNode> {
        let retired = lock(&self.retired);
        let mut nodes = self.world.nodes();
        nodes.retain(|node| !retired.contains(&node.index()));
        nodes
    }

    /// Notes that a fault that needs more than its time came about.
    pub(super) fn took(&self, row: &'static str) {
        self.recorder.see(Observation::Took { row });
    }

    /// A node starts no more before its disk is wiped.
    pub(super) fn bereave(&self, node: &SimNode) {
        node.empty_log();
        lock(&self.bereft).insert(node.index());
    }

    /// Wipes the disks of the nodes that do not start without it.
    pub(super) fn wipe_the_bereft(&self) {
        for index in std::mem::take(&mut *lock(&self.bereft)) {
            self.world.node(index).wipe();
        }
    }

    /// A node is a member no more, and is not started again.
    pub(super) fn retire(&self, node: &SimNode) {
        node.crash(Crash::Kill);
        lock(&self.retired).insert(node.index());
    }

    /// These are the members. Any other node is gone, with its disk, and those of them that
    /// were retired are not.
    pub(super) fn retire_all_but(&self, members: &[SimNode]) {
        let is_member = |index| members.iter().any(|member| member.index() == index);
        for node in self.world.nodes() {
            if is_member(node.index()) {
                lock(&self.retired).remove(&node.index());
            } else {
                node.wipe();
                lock(&self.retired).insert(node.index());
            }
        }
    }

    /// The node that is meant, at this moment.
    pub(super) fn node(&self, who: Who) -> SimNode {
        let leader = self.world.leader();
        let nodes = self.nodes();
        let leader = nodes.iter().position(|node| Some(node.index()) == leader);
        let leader = leader.unwrap_or_default();
        let behind = match who {
            Who::Leader => 0,
            Who::Behind(behind) => behind,
        };
        nodes[(leader + behind) % nodes.len()].clone()
    }

    pub(super) fn client(&self, at: usize) -> &SimClient {
        &self.clients[at % self.clients.len()]
    }

    /// The machines of all nodes.
    pub(super) fn machines(&self) -> Vec<MachineId> {
        let nodes = self.nodes();
        nodes.iter().map(|node| node.machine().id()).collect()
    }

    /// Kills a node, and starts it again after a while.
    pub(super) async fn crash(&self, node: &SimNode, how: Crash, lasts: Duration) {
        node.crash(how);
        sleep(lasts).await;
        self.start_again(node).await;
    }

    /// Starts a node again if it is still one of these. What keeps it from starting now is looked at
    /// when all is healed.
    pub(super) async fn start_again(&self, node: &SimNode) {
        if lock(&self.retired).contains(&node.index()) {
            return;
        }
        if let Err(why) = self.start(node).await {
            let (name, now) = (node.index(), self.world.now());
            self.world
                .trace(format_args!("n{name} does not start at {now:?}: {why}"));
        }
    }

    async fn start(&self, node: &SimNode) -> Result<(), String> {
        self.find_the_cluster(node);
        let mut tried = node.start().await;
        // A crash in the middle of a start is no fault of the node's.
        for _ in 0..3 {
            if tried.is_ok() || node.machine().is_paused() {
                break;
            }
            tried = node.start().await;
        }
        tried
    }

    /// A node with an empty disk asks the first members where the cluster is. Once all of them have
    /// been replaced its operator has to say it.
    fn find_the_cluster(&self, node: &SimNode) {
        let nodes = self.nodes();
        let mut others = nodes.iter().filter(|other| other.index() != node.index());
        let was_wiped = node.directory() > 0;
        if was_wiped && !others.any(|other| other.is_first() && self.id_of(other).is_some()) {
            node.is_to_join(nodes.iter());
        }
    }
}
