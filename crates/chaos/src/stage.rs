//! Everything that takes part in a run: the network, the nodes, the clients, and what they share.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::capability::Ground;
use crate::clock::now_ns;
use crate::cluster::{Asking, Disk, Home, Ipv4Peer, Making, Node, PEER_PORT, Views, node_name};
use crate::crew::Crew;
use crate::net::Fabric;
use crate::plan::{Kind, Plan};
use crate::record::ViolationRecord;
use crate::scratch::Scratch;
use crate::tally::Tally;
use crate::workload::{MemoryServer, SQLITE, UNGUARDED};

/// The socket of the store in memory, in the scratch directory.
pub(crate) const MEMORY_SOCKET: &str = "memory.sock";
/// How far a node may be behind the others and count as whole.
const BEHIND_MAX: u64 = 500;

/// All that a run consists of. Dropping it ends the processes, then takes down what they used.
pub(crate) struct Stage {
    pub(crate) plan: Plan,
    pub(crate) crew: Crew,
    pub(crate) nodes: Vec<Node>,
    pub(crate) views: Views,
    pub(crate) fabric: Option<Fabric>,
    pub(crate) memory: MemoryServer,
    pub(crate) tally: Arc<Mutex<Tally>>,
    /// When the workload began, in ns.
    pub(crate) began_ns: u64,
    /// Broken promises that showed while the run went on.
    pub(crate) violations: Vec<ViolationRecord>,
    /// What went wrong with the run itself.
    pub(crate) troubles: Vec<String>,
    // Last: what the processes use is taken down when they have ended.
    pub(crate) scratch: Scratch,
}

impl Stage {
    /// Makes everything and starts the nodes. To be called on the thread that lives as long as
    /// the run: the processes end with it.
    ///
    /// # Errors
    /// What could not be made, and why.
    pub(crate) fn set(
        plan: &Plan,
        ground: &Ground,
        kinds: &[Kind],
        tally: Arc<Mutex<Tally>>,
    ) -> io::Result<Self> {
        let scratch = Scratch::make(plan.report.join("scratch"), ground, &plan.program)?;
        for store in [SQLITE, UNGUARDED] {
            std::fs::create_dir_all(scratch.path("stores").join(store))?;
        }
        // The way to a socket must be short, and this one is, whatever the directory is called.
        let dir = File::open(scratch.root())?;
        let socket = format!("/proc/self/fd/{}/{MEMORY_SOCKET}", dir.as_raw_fd());
        let memory = MemoryServer::serve(Path::new(&socket))?;
        let ours = plan.target.is_none();
        let places = plan.nodes as usize + 1;
        let fabric = match (&ground.network, ours) {
            (Ok(()), true) => Some(Fabric::build(places + plan.clients as usize, plan.seed)?),
            _ => None,
        };
        let mut stage = Self {
            plan: plan.clone(),
            crew: Crew::default(),
            nodes: Vec::new(),
            views: Views::new(if ours { places } else { 0 }),
            fabric,
            memory,
            tally,
            began_ns: now_ns(),
            violations: Vec::new(),
            troubles: Vec::new(),
            scratch,
        };
        if ours {
            stage.make_nodes(places, ground, kinds)?;
        }
        Ok(stage)
    }

    fn make_nodes(&mut self, places: usize, ground: &Ground, kinds: &[Kind]) -> io::Result<()> {
        let logs = self.plan.report.join("nodes");
        std::fs::remove_dir_all(&logs).ok();
        std::fs::create_dir_all(&logs)?;
        let members: Vec<String> = (0..self.plan.nodes as usize)
            .map(|place| {
                let address = self.home(place).address;
                format!("{}={address}:{PEER_PORT}", node_name(place))
            })
            .collect();
        for place in 0..places {
            let making = Making {
                name: node_name(place),
                home: self.home(place),
                disk: self.disk(place, ground, kinds)?,
                logs: &logs,
                program: &self.plan.program,
                found_by: format!("--initial-cluster={}", members.join(",")),
            };
            let mut node = Node::new(making);
            if place < self.plan.nodes as usize {
                node.start()?;
            }
            self.nodes.push(node);
            let home = self.home(place);
            let asking = self.views.asking(place, home.address);
            match &self.fabric {
                Some(fabric) => fabric.within(place, asking)?,
                None => asking(),
            }
        }
        Ok(())
    }

    fn disk(&self, place: usize, ground: &Ground, kinds: &[Kind]) -> io::Result<Disk> {
        let root = self.scratch.path(&node_name(place));
        match (kinds.contains(&Kind::Disk), &ground.power, &ground.mounts) {
            (true, Ok(()), _) => {
                let image = self.scratch.path(&format!("{}.ext4", node_name(place)));
                Disk::ext4(root, image)
            }
            (true, Err(_), Ok(())) => Disk::memory(root),
            _ => Disk::directory(root),
        }
    }

    /// Where the node at this place lives.
    pub(crate) fn home(&self, place: usize) -> Home {
        match &self.fabric {
            Some(fabric) => Home {
                address: fabric.address(place),
                network: Some(fabric.namespace(place)),
            },
            None => {
                // The whole of 127.0.0.0/8 is this machine: each run takes a part of its own.
                let [.., high, low] = std::process::id().to_be_bytes();
                let last = u8::try_from(11 + place).unwrap_or(u8::MAX);
                Home {
                    address: Ipv4Addr::new(127, 64 + high % 128, low, last),
                    network: None,
                }
            }
        }
    }

    /// The port of a client at the switch.
    pub(crate) fn client_port(&self, number: u32) -> usize {
        (self.plan.nodes + number) as usize
    }

    /// Starts a node's process.
    pub(crate) fn start_node(&mut self, place: usize) -> Result<(), String> {
        let node = &mut self.nodes[place];
        let started = node.start();
        started.map_err(|cause| format!("{} could not be started: {cause}", node.name))
    }

    /// A member by which the node at this place can join.
    pub(crate) fn peer_beside(&self, place: usize) -> Ipv4Peer {
        let known = self.views.leader().map(|(leader, _)| leader);
        let beside = known.filter(|leader| *leader != place);
        let beside = beside.unwrap_or(usize::from(place == 0));
        Ipv4Peer(self.home(beside).address)
    }

    /// How the members are changed.
    pub(crate) fn asking(&self) -> Asking {
        let first = self.views.leader().map_or(0, |(leader, _)| leader);
        Asking {
            program: self.plan.program.clone(),
            from: self.home(first),
            nodes: (0..self.plan.nodes as usize)
                .map(|place| self.home(place))
                .collect(),
        }
    }

    /// Whether every first member runs, knows a leader and is not behind.
    pub(crate) fn is_whole(&self) -> bool {
        let views = self.views.all();
        let members = || views.iter().take(self.plan.nodes as usize);
        let newest = members().map(|view| view.applied).max().unwrap_or(0);
        let runs = self.nodes.iter().take(self.plan.nodes as usize);
        let mut pairs = runs.zip(members());
        let leads = self.plan.target.is_some() || self.views.leader().is_some();
        leads
            && pairs.all(|(node, view)| {
                node.runs()
                    && !node.paused
                    && view.is_fresh()
                    && view.led
                    && view.applied + BEHIND_MAX >= newest
            })
    }

    /// The nodes that are not, for people.
    pub(crate) fn not_whole(&self) -> String {
        let views = self.views.all();
        let pairs = self.nodes.iter().take(self.plan.nodes as usize).zip(&views);
        let told = pairs.map(|(node, view)| {
            let how = match (node.runs(), view.is_fresh(), view.led) {
                (false, ..) => "is down".to_owned(),
                (_, false, _) => "does not answer".to_owned(),
                (.., false) => "knows no leader".to_owned(),
                _ => format!("has applied {}", view.applied),
            };
            format!("{} {how}", node.name)
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// Notes nodes that have ended without being ordered to.
    pub(crate) fn look_after_nodes(&mut self) {
        for node in &mut self.nodes {
            if node.doomed {
                continue;
            }
            if let Some(ended) = node.ended() {
                self.violations.push(ViolationRecord {
                    invariant: "no crash".to_owned(),
                    what: format!(
                        "{} {ended} without a fault that explains it; see {}",
                        node.name,
                        node.log.display()
                    ),
                    at_ns: Some(now_ns()),
                    lease: None,
                });
                // It goes on without: what else happens is of interest, too.
                node.doomed = true;
                if let Err(cause) = node.start() {
                    self.troubles.push(format!("{}: {cause}", node.name));
                }
            }
        }
    }
}
