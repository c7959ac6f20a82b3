//! Server processes and what can be done to them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringfence_proto::v1::StatusRequest;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_testkit::ports::Port;
use rustix::process::{Pid, Signal as Unix, kill_process};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Caller;

/// How many clusters of this process run at once: most tests wait more than they work, and more
/// clusters than these would wait for each other's processors and disks.
const PLACES: u32 = 3;
static FREE: Semaphore = Semaphore::const_new(PLACES as usize);

/// What may run at the same time as a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beside {
    /// No other cluster of this process: for tests of times, of leaders that stay, and those that take
    /// all of the machine.
    Nothing,
    /// Two others.
    #[default]
    Few,
    /// All others, as if it were not there: for one node in a test that is about no times, and for a
    /// test's second cluster.
    Anything,
}

impl Beside {
    fn places(self) -> u32 {
        match self {
            Self::Nothing => PLACES,
            Self::Few => 1,
            Self::Anything => 0,
        }
    }
}

/// What is different from a plain cluster of three.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes.
    pub nodes: usize,
    /// The program of every node; `None`: the one of this build.
    pub server: Option<PathBuf>,
    /// Further flags for every node.
    pub flags: Vec<String>,
    /// Variables of every node's environment, which has no others.
    pub variables: Vec<(String, String)>,
    /// Tokens start above this number; `None`: at the wall clock.
    pub token_floor: Option<u64>,
    /// What the nodes tell clients to be reached at, in their order: proxies, for example. Those
    /// without one tell the truth.
    pub advertise_client: Vec<String>,
    /// Which other clusters of this process it waits for.
    pub beside: Beside,
    /// Whether a session is opened and closed at the start, to see that the cluster serves. It is
    /// remembered for a minute, and the log does not stand still before.
    pub probed: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 3,
            server: None,
            flags: Vec::new(),
            variables: Vec::new(),
            token_floor: None,
            advertise_client: Vec::new(),
            beside: Beside::default(),
            probed: true,
        }
    }
}

impl Options {
    /// A plain cluster of three that runs while no other cluster of this process does.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            beside: Beside::Nothing,
            ..Self::default()
        }
    }
}

/// What can be sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
    /// SIGTERM.
    Terminate,
}

struct Ports {
    client: Port,
    peer: Port,
    http: Port,
}

/// Nodes n1, n2 … with data directories of their own; all of it goes when it is dropped.
pub struct Cluster {
    nodes: Vec<Node>,
    options: Options,
    folder: TempDir,
    _places: SemaphorePermit<'static>,
}

struct Node {
    ports: Ports,
    server: Option<PathBuf>,
    child: Option<Child>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(mut child) = node.child.take() {
                child.kill().ok();
                child.wait().ok();
            }
        }
        if std::thread::panicking() {
            self.show_logs();
        }
    }
}

impl Cluster {
    /// Starts nodes with empty directories and waits until they serve.
    ///
    /// # Panics
    /// If they do not within 30 s.
    pub async fn start(options: Options) -> Self {
        let places = FREE.acquire_many(options.beside.places()).await;
        let places = places.expect("it is never closed");
        let folder = tempfile::Builder::new().prefix("ringfence-test-").tempdir();
        let folder = folder.expect("a temporary folder can be made");
        let nodes = (0..options.nodes).map(|_| Node {
            ports: Ports {
                client: Port::any(),
                peer: Port::any(),
                http: Port::any(),
            },
            server: options.server.clone(),
            child: None,
        });
        let mut cluster = Self {
            nodes: nodes.collect(),
            options,
            folder,
            _places: places,
        };
        for at in 0..cluster.nodes.len() {
            cluster.spawn(at);
        }
        let patience = Duration::from_secs(30);
        match cluster.options.probed {
            true => cluster.wait_until_serving(patience).await,
            false => drop(cluster.wait_for_leader(patience).await),
        }
        cluster
    }

    /// Starts a node's process on its directory.
    ///
    /// # Panics
    /// If it runs already.
    pub fn spawn(&mut self, at: usize) {
        assert!(self.nodes[at].child.is_none(), "n{} runs already", at + 1);
        let mut command = self.command(at);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file(at));
        let log = log.expect("a log file can be made");
        command.stdout(Stdio::null()).stderr(log);
        self.nodes[at].child = Some(command.spawn().expect("the server starts"));
    }

    /// Gives the nodes that are started from now on these further flags instead of the present ones.
    pub fn set_flags(&mut self, flags: Vec<String>) {
        self.options.flags = flags;
    }

    /// The command line of a node.
    #[must_use]
    pub fn command(&self, at: usize) -> Command {
        let ports = &self.nodes[at].ports;
        let members = self.nodes.iter().enumerate();
        let members =
            members.map(|(at, node)| format!("n{}={}", at + 1, node.ports.peer.address()));
        let members = members.collect::<Vec<_>>().join(",");
        let server = self.nodes[at].server.as_ref();
        let mut command = Command::new(server.unwrap_or_else(|| crate::binary::server()));
        command.env_clear().env("RUST_BACKTRACE", "1");
        command.envs(self.options.variables.iter().cloned());
        command.args(["serve", "--name", &format!("n{}", at + 1)]);
        command.arg("--data-dir").arg(self.data_dir(at));
        command.args(["--initial-cluster", &members]);
        command.args(["--listen-client", &ports.client.address().to_string()]);
        command.args(["--listen-peer", &ports.peer.address().to_string()]);
        command.args(["--listen-http", &ports.http.address().to_string()]);
        command.args(["--wal-segment-bytes", "4194304"]);
        if let Some(address) = self.options.advertise_client.get(at) {
            command.args(["--advertise-client", address]);
        }
        if let Some(floor) = self.options.token_floor {
            command.args(["--token-floor", &floor.to_string()]);
        }
        command.args(&self.options.flags);
        command
    }

    /// From its next start on, a node is this program; that of this build if `None`.
    pub fn set_server(&mut self, at: usize, server: Option<PathBuf>) {
        self.nodes[at].server = server;
    }

    /// Where a node keeps its data.
    #[must_use]
    pub fn data_dir(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("n{}", at + 1))
    }

    fn log_file(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("n{}.log", at + 1))
    }

    /// What a node has logged so far.
    #[must_use]
    pub fn log(&self, at: usize) -> String {
        fs::read_to_string(self.log_file(at)).unwrap_or_default()
    }

    fn show_logs(&self) {
        for at in 0..self.nodes.len() {
            let log = self.log(at);
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(25);
            eprintln!("--- n{} ---\n{}", at + 1, lines[from..].join("\n"));
        }
    }

    /// Where clients reach each node.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        let ports = self.nodes.iter().map(|node| &node.ports.client);
        ports.map(|port| port.address().to_string()).collect()
    }

    /// Where other nodes reach a node.
    #[must_use]
    pub fn peer(&self, at: usize) -> String {
        self.nodes[at].ports.peer.address().to_string()
    }

    /// Where a node serves HTTP.
    #[must_use]
    pub fn http(&self, at: usize) -> String {
        self.nodes[at].ports.http.address().to_string()
    }

    /// A caller that knows all nodes.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller::new(self.endpoints())
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The process of a node, if it runs.
    #[must_use]
    pub fn pid(&self, at: usize) -> Option<u32> {
        self.nodes[at].child.as_ref().map(Child::id)
    }

    /// Sends a signal; after [`Signal::Kill`] the process is waited for.
    ///
    /// # Panics
    /// If the node does not run.
    pub fn signal(&mut self, at: usize, signal: Signal) {
        let child = self.nodes[at].child.as_mut().expect("the node runs");
        let pid = Pid::from_child(child);
        let unix = match signal {
            Signal::Kill => Unix::KILL,
            Signal::Stop => Unix::STOP,
            Signal::Continue => Unix::CONT,
            Signal::Terminate => Unix::TERM,
        };
        kill_process(pid, unix).expect("our own child can be signalled");
        if signal == Signal::Kill {
            child.wait().expect("our own child can be waited for");
            self.nodes[at].child = None;
        }
    }

    /// Waits for a node to end on its own; its exit code, or `None` if it still runs at the end.
    pub async fn wait_exit(&mut self, at: usize, within: Duration) -> Option<i32> {
        let deadline = tokio::time::sleep(within);
        tokio::pin!(deadline);
        loop {
            let child = self.nodes[at].child.as_mut()?;
            if let Ok(Some(status)) = child.try_wait() {
                self.nodes[at].child = None;
                return Some(status.code().unwrap_or(-1));
            }
            tokio::select! {
                () = &mut deadline => return None,
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    }

    /// Which node leads, as most of those that answer say.
    pub async fn leader(&self) -> Option<usize> {
        let mut votes = vec![0; self.nodes.len() + 1];
        for endpoint in self.endpoints() {
            let asked = tokio::time::timeout(Duration::from_millis(500), status_of(&endpoint));
            if let Ok(Some(status)) = asked.await
                && let Ok(leader) = usize::try_from(status.leader_id)
                && (1..votes.len()).contains(&leader)
            {
                votes[leader] += 1;
            }
        }
        let (leader, &count) = votes.iter().enumerate().max_by_key(|(_, count)| **count)?;
        (count > 0).then(|| leader - 1)
    }

    /// The newest log index that a node has applied.
    ///
    /// # Panics
    /// If the node does not answer.
    pub async fn applied(&self, at: usize) -> u64 {
        let status = status_of(&self.endpoints()[at]).await;
        status.expect("the node answers").applied_index
    }

    /// The level of the log commands that a node has applied.
    ///
    /// # Panics
    /// If the node does not answer.
    pub async fn level(&self, at: usize) -> u32 {
        let status = status_of(&self.endpoints()[at]).await;
        status.expect("the node answers").level
    }

    /// The cluster time that a node has applied.
    ///
    /// # Panics
    /// If the node does not answer.
    pub async fn time(&self, at: usize) -> Duration {
        let status = status_of(&self.endpoints()[at]).await;
        Duration::from_millis(status.expect("the node answers").cluster_time_ms)
    }

    /// Waits until a node has applied this log index.
    ///
    /// # Panics
    /// If it has not in time.
    pub async fn wait_until_applied(&self, at: usize, index: u64, within: Duration) {
        let endpoint = &self.endpoints()[at];
        let wait = async {
            loop {
                let status = status_of(endpoint).await;
                if status.is_some_and(|status| status.applied_index >= index) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(within, wait)
            .await
            .unwrap_or_else(|_| panic!("node {at} applies {index} in time:\n{}", self.log(at)));
    }

    /// Waits until a leader is known.
    ///
    /// # Panics
    /// If there is none in time.
    pub async fn wait_for_leader(&self, within: Duration) -> usize {
        let wait = async {
            loop {
                if let Some(leader) = self.leader().await {
                    return leader;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(within, wait)
            .await
            .expect("the cluster has a leader in time")
    }

    /// Waits until a session can be opened.
    ///
    /// # Panics
    /// If it cannot in time.
    pub async fn wait_until_serving(&self, within: Duration) {
        let mut caller = self.caller();
        caller.patience = within;
        // It outlives the patience: a first try whose answer was lost has opened it.
        let ttl = within + Duration::from_secs(10);
        let session = caller.open("probe", ttl).await;
        let session = session.expect("the cluster serves in time");
        caller
            .close(&session)
            .await
            .expect("a session can be closed");
    }

    /// Copies all data directories, while no node runs.
    pub fn back_up(&self, to: &Path) {
        for at in 0..self.nodes.len() {
            copy_dir(&self.data_dir(at), &to.join(format!("n{}", at + 1)));
        }
    }

    /// Puts copies in the place of all data directories, while no node runs.
    pub fn roll_back(&self, from: &Path) {
        for at in 0..self.nodes.len() {
            fs::remove_dir_all(self.data_dir(at)).expect("the old data can be removed");
            copy_dir(&from.join(format!("n{}", at + 1)), &self.data_dir(at));
        }
    }
}

async fn status_of(endpoint: &str) -> Option<ringfence_proto::v1::StatusResponse> {
    let mut client = ClusterClient::connect(format!("http://{endpoint}"))
        .await
        .ok()?;
    Some(client.status(StatusRequest {}).await.ok()?.into_inner())
}

/// Copies a folder with all its files and folders; a socket in it is left out, since a copy of one
/// would be of no use.
///
/// # Panics
/// If that cannot be done.
pub fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        let target = to.join(entry.file_name());
        let kind = entry.file_type().expect("an entry has a type");
        if kind.is_dir() {
            copy_dir(&entry.path(), &target);
        } else if kind.is_file() {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}
