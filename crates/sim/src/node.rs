//! A node of the cluster on its machine: started, stopped, crashed, wiped, set back.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_core::{Entry, Event, Outcome, StateMachine};
use ringfence_raft::{Hooks, Node, NodeConfig, Observer, Restore, StopReason};
use ringfence_services::Pool;
use ringfence_wal::sim::Crash as Loss;
use tokio::sync::watch;

use crate::listener::{End, Listener};
use crate::lock::lock;
use crate::machine::Machine;
use crate::setup::Setup;
use crate::timeline::Timeline;
use crate::trace::Trace;

/// Where every node keeps its files, on a disk of its own.
pub const DATA_DIR: &str = "/data";
/// Its log.
pub const LOG_DIR: &str = "/data/wal";
/// Its snapshots.
pub const SNAPSHOT_DIR: &str = "/data/snapshots";

/// How long a node that stops tries to hand leadership over while it still serves: as in the binary.
const HANDOVER_MAX: Duration = Duration::from_millis(700);

/// How a node dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Its process is killed; the machine goes on, and what was written is not lost.
    Kill,
    /// The machine loses power, and with it everything that was not synced.
    Power,
    /// The machine loses power in the middle of its writes: some of what was not synced is there,
    /// sector by sector, and some of it is garbage.
    Torn,
}

/// One node. Clones are the same node.
#[derive(Clone)]
pub struct SimNode {
    shared: Arc<Shared>,
}

struct Shared {
    index: usize,
    machine: Machine,
    setup: Setup,
    /// Names and addresses of the first members.
    first: Vec<(String, String)>,
    context: Context,
    state: Mutex<State>,
}

/// What nodes report to.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) timeline: Timeline,
    pub(crate) trace: Trace,
    pub(crate) listener: Arc<dyn Listener>,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    starts: u64,
    /// How often its disk was wiped.
    wipes: u64,
    /// Set by a wipe: the node comes back as one that is unknown.
    replaces: bool,
    /// Where its operator says that the cluster is, if not at the first members.
    join: Vec<String>,
    /// What its operator restores.
    restore: Option<Restore>,
}

/// What a process of the binary has.
struct Running {
    node: Node,
    /// What serves its clients.
    services: ringfence_services::Context,
    /// Ends their streams.
    stop: watch::Sender<bool>,
}

impl Running {
    fn new(node: Node) -> Self {
        let (stop, stopping) = watch::channel(false);
        Self {
            services: ringfence_services::Context::new(node.clone(), Pool::new(), stopping),
            node,
            stop,
        }
    }
}

pub(crate) fn name(index: usize) -> String {
    format!("n{}", index + 1)
}

pub(crate) fn peer_address(index: usize) -> SocketAddr {
    let [.., high, low] = (index as u32 + 1).to_be_bytes();
    SocketAddr::from(([10, 0, high, low], 7421))
}

pub(crate) fn client_address(index: usize) -> SocketAddr {
    SocketAddr::from((peer_address(index).ip(), 7420))
}

impl SimNode {
    pub(crate) fn new(
        index: usize,
        machine: Machine,
        setup: Setup,
        first: Vec<(String, String)>,
        context: Context,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                index,
                machine,
                setup,
                first,
                context,
                state: Mutex::default(),
            }),
        }
    }

    /// Its number, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.shared.index
    }

    /// Its machine: pauses, clocks, the disk.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.shared.machine
    }

    /// The node itself, while it runs. What is called on it without going through the network runs
    /// as if in its own process: take [`Machine::spawn`] or [`Machine::visit`] for it.
    #[must_use]
    pub fn handle(&self) -> Option<Node> {
        let state = lock(&self.shared.state);
        state.running.as_ref().map(|running| running.node.clone())
    }

    /// What serves its clients, while it runs.
    pub(crate) fn services(&self) -> Option<ringfence_services::Context> {
        let state = lock(&self.shared.state);
        let running = state.running.as_ref();
        running.map(|running| running.services.clone())
    }

    /// Whether it runs, paused or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        lock(&self.shared.state).running.is_some()
    }

    /// The number of its data directory: each wipe begins another one.
    #[must_use]
    pub fn directory(&self) -> u64 {
        lock(&self.shared.state).wipes
    }

    /// How often it was started.
    #[must_use]
    pub fn starts(&self) -> u64 {
        lock(&self.shared.state).starts
    }

    /// Starts it on what its disk holds. One that runs already is left alone.
    ///
    /// # Errors
    /// Why it does not start, as its operator would see it.
    pub async fn start(&self) -> Result<(), String> {
        if self.is_running() {
            return Ok(());
        }
        let machine = self.machine();
        machine.power_on();
        let process = machine.process();
        let starts = {
            let mut state = lock(&self.shared.state);
            state.starts += 1;
            state.starts - 1
        };
        self.say(format_args!("starts"));
        self.shared.context.listener.started(self.index(), starts);
        let started = machine.spawn(Node::start(self.config())).await;
        let why = match started {
            Ok(Ok(node)) if !process.is_dead() => {
                lock(&self.shared.state).running = Some(Running::new(node.clone()));
                drop(machine.spawn(self.clone().notice_end(node)));
                return Ok(());
            }
            Ok(Ok(_)) | Err(_) => "it was crashed while it started".to_owned(),
            Ok(Err(error)) => told(&error),
        };
        if !process.is_dead() {
            self.over(Loss::ProcessOnly, false, &End::NotStarted(why.clone()));
        }
        Err(why)
    }

    /// Shuts it down as its operator would: leadership is handed over first.
    pub async fn stop(&self) {
        let running = lock(&self.shared.state)
            .running
            .as_ref()
            .map(|running| (running.node.clone(), running.stop.clone()));
        let Some((node, stop)) = running else { return };
        let process = self.machine().process();
        self.say(format_args!("shuts down"));
        let stopping = async move {
            node.resign(HANDOVER_MAX).await;
            stop.send_replace(true);
            node.shutdown().await;
        };
        // It may be crashed meanwhile, or be paused.
        self.machine().spawn(stopping).await.ok();
        if !process.is_dead() {
            self.over(Loss::ProcessOnly, false, &End::Stopped);
        }
    }

    /// Ends it at once, wherever it stands, also while it starts.
    pub fn crash(&self, how: Crash) {
        let disk = self.machine().disk();
        let (loss, power_lost) = match how {
            Crash::Kill => (Loss::ProcessOnly, false),
            Crash::Power => (Loss::LoseAll, true),
            Crash::Torn => (Loss::Garble(disk.seed()), true),
        };
        self.say(format_args!("dies: {how:?}"));
        self.over(loss, power_lost, &End::Crashed);
    }

    /// Crashes it and empties its disk. It starts as a new node, which asks to take the place of
    /// the old one.
    pub fn wipe(&self) {
        self.crash(Crash::Power);
        self.machine().disk().wipe();
        let mut state = lock(&self.shared.state);
        state.wipes += 1;
        state.replaces = true;
    }

    /// Its operator says where the cluster is by now: at these nodes.
    pub fn is_to_join<'a>(&self, nodes: impl Iterator<Item = &'a Self>) {
        let others = nodes.filter(|node| node.index() != self.index());
        let addresses = others.map(|node| peer_address(node.index()).to_string());
        lock(&self.shared.state).join = addresses.collect();
    }

    /// Its operator starts it to restore a cluster from now on. Tokens begin at the clock, above those
    /// of the backup.
    pub fn is_to_restore(&self, restore: Restore) {
        lock(&self.shared.state).restore = Some(restore);
    }

    /// Whether it was to form the cluster with others.
    #[must_use]
    pub fn is_first(&self) -> bool {
        let name = name(self.index());
        self.shared.first.iter().any(|(first, _)| *first == name)
    }

    /// Kills it and empties the folder of its log.
    pub fn empty_log(&self) {
        self.crash(Crash::Kill);
        self.machine().disk().files().empty_dir(Path::new(LOG_DIR));
    }

    /// Crashes it and brings its disk back to a copy; false if there is none of this number. See
    /// [`crate::disk::Disk::keep_copy`].
    pub fn roll_back(&self, copy: usize) -> bool {
        self.crash(Crash::Power);
        self.machine().disk().roll_back(copy)
    }

    /// The end of the process. The files die before the tasks: what a dead process would write at
    /// its end is not written.
    fn over(&self, loss: Loss, power_lost: bool, how: &End) {
        let running = lock(&self.shared.state).running.take();
        self.machine().disk().crash(loss);
        self.machine().end_process(power_lost);
        self.say(format_args!("is gone: {how:?}"));
        self.shared.context.listener.ended(self.index(), how);
        drop(running);
    }

    /// A node that stops on its own ends its process, as a server does. It runs there, so that
    /// nothing of a dead process is kept.
    async fn notice_end(self, node: Node) {
        let reason = node.stopped().await;
        drop(node);
        if reason != StopReason::ShutDown {
            self.over(Loss::ProcessOnly, false, &End::ByItself(reason));
        }
    }

    /// Lets go of the node at the end of a run.
    pub(crate) fn forget(&self) {
        drop(lock(&self.shared.state).running.take());
    }

    fn config(&self) -> NodeConfig {
        let shared = &self.shared;
        let setup = &shared.setup;
        let mut config = NodeConfig::new(name(shared.index), PathBuf::from(DATA_DIR));
        config.peer_listen = peer_address(shared.index);
        config.client_advertise = client_address(shared.index).to_string();
        config.join.clone_from(&lock(&shared.state).join);
        if self.is_first() {
            config.initial_cluster.clone_from(&shared.first);
        } else if config.join.is_empty() {
            let addresses = shared.first.iter().map(|(_, address)| address.clone());
            config.join = addresses.collect();
        }
        config.replace_on_data_loss = lock(&shared.state).replaces;
        config.restore.clone_from(&lock(&shared.state).restore);
        config.token_floor = setup.token_floor.filter(|_| config.restore.is_none());
        config.settings = setup.settings;
        // No client reaches it, so rights may bind.
        config.peer_port_is_local = true;
        config.timing = setup.timing;
        config.wal_segment_bytes = setup.wal_segment_bytes;
        config.snapshot_log_bytes = setup.snapshot_log_bytes;
        config.snapshot_log_keep = setup.snapshot_log_keep;
        config.hooks = Hooks {
            files: Arc::new(shared.machine.disk().files().of_process()),
            observer: Some(Arc::new(Reporter(self.clone()))),
            ..Hooks::default()
        };
        config
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        let Context {
            timeline, trace, ..
        } = &self.shared.context;
        trace.line(
            timeline.now(),
            format_args!("{} {what}", self.machine().name()),
        );
    }
}

fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Passes on what a node tells.
struct Reporter(SimNode);

impl Reporter {
    fn listener(&self) -> &dyn Listener {
        self.0.shared.context.listener.as_ref()
    }
}

impl Observer for Reporter {
    fn applied(&self, machine: &StateMachine, entry: &Entry, outcome: &Outcome, events: &[Event]) {
        self.0.say(format_args!(
            "applied {}/{} at {}: {outcome:?}",
            entry.index, entry.term, entry.time
        ));
        let index = self.0.index();
        self.listener()
            .applied(index, machine, entry, outcome, events);
    }

    fn skipped(&self, machine: &StateMachine, index: u64, term: u64) {
        self.0.say(format_args!("went past {index}/{term}"));
        self.listener()
            .skipped(self.0.index(), machine, index, term);
    }

    fn installed(&self, machine: &StateMachine, index: u64, term: u64) {
        self.0
            .say(format_args!("took up a snapshot of {index}/{term}"));
        self.listener()
            .installed(self.0.index(), machine, index, term);
    }

    fn leads(&self, term: u64) {
        self.0.say(format_args!("leads in term {term}"));
        self.listener().leads(self.0.index(), term);
    }

    fn leads_no_more(&self, term: u64) {
        self.0.say(format_args!("lost leadership in term {term}"));
        self.listener().leads_no_more(self.0.index(), term);
    }
}
