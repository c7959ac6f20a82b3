//! Who can be disturbed, and how a plan of faults is carried out and undone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Fault, Scheduled, Who};
use crate::client::SimClient;
use crate::machine::{MachineId, lock};
use crate::net::Weather;
use crate::node::{Crash, SimNode};
use crate::observe::{Observation, Recorder, Violation};
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
    /// Nodes that are members no more.
    retired: Arc<Mutex<BTreeSet<usize>>>,
}

impl Stage {
    /// A stage with these clients.
    #[must_use]
    pub fn new(
        world: &World,
        clients: Vec<SimClient>,
        work: &Arc<Work>,
        recorder: &Recorder,
    ) -> Self {
        Self {
            world: world.clone(),
            clients: Arc::new(clients),
            work: Arc::clone(work),
            recorder: recorder.clone(),
            retired: Arc::default(),
        }
    }

    /// Carries the plan out. What still runs when this is dropped is left as it is: see
    /// [`Stage::heal`].
    pub async fn disturb(&self, plan: &[Scheduled]) {
        let mut running = JoinSet::new();
        for (at, one) in plan.iter().cloned().enumerate() {
            let stage = self.clone();
            running.spawn(async move {
                sleep(one.at.saturating_sub(stage.world.now())).await;
                let fault = one.fault.clone();
                stage.recorder.see(Observation::FaultBegan { at, fault });
                stage.make(one.fault, one.lasts).await;
                stage.recorder.see(Observation::FaultEnded { at });
            });
        }
        while running.join_next().await.is_some() {}
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
            machine.disk().stall(Duration::ZERO);
        }
        for client in self.clients.iter() {
            client.resume();
            client.set_clock_rate(0);
            session::begin(client, &self.work);
        }
        for node in self.nodes() {
            // What was in the middle of a start when its fault was called off begins anew.
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

    /// A node is a member no more, and is not started again.
    pub(super) fn retire(&self, node: &SimNode) {
        node.crash(Crash::Kill);
        lock(&self.retired).insert(node.index());
    }

    /// These are the members. Whoever else there was is gone, with its disk, and those of them that
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

    /// Starts a node again. What keeps it from starting now is looked at when all is healed.
    pub(super) async fn start_again(&self, node: &SimNode) {
        if let Err(why) = self.start(node).await {
            let (name, now) = (node.index(), self.world.now());
            self.world
                .trace(format_args!("n{name} does not start at {now:?}: {why}"));
        }
    }

    async fn start(&self, node: &SimNode) -> Result<(), String> {
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
}
