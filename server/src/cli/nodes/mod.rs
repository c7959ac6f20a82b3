//! A cluster of child processes on loopback: what `dev`, `demo` and `bench` run on.
//!
//! The nodes are this same binary. They end with this process however it ends, and a temporary
//! data directory goes with them. A node that dies is reported and never restarted automatically.

mod child;
mod ports;
mod ready;

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_core::Mode;
use tempfile::TempDir;

pub(crate) use child::{Child, Ended};
pub(crate) use ports::{Held, Ports};

use super::Failure;
use super::exit;

/// How long nodes get to stop before they are killed; `serve` promises to end within this time.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// A laptop need not fill gigabytes with zeros to try three nodes.
const TRIAL_SEGMENT_BYTES: u32 = 8 << 20;

/// What to start.
#[derive(Debug)]
pub(crate) struct Plan {
    /// How many nodes.
    pub(crate) count: u8,
    /// Where they listen.
    pub(crate) ports: Ports,
    /// Where they keep their data; absent: a temporary directory, removed at the end.
    pub(crate) data_dir: Option<PathBuf>,
    /// Whether the nodes are only to try things with: then they save disk space, at the price of
    /// speed under load.
    pub(crate) trial: bool,
    /// How much rights bind.
    pub(crate) access: Mode,
}

/// One node: where it listens, where its data is, and its process while it runs.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) client: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) dir: PathBuf,
    pub(crate) log: PathBuf,
    child: Option<Child>,
}

/// The nodes of one cluster.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    /// Keeps the temporary directory until the nodes have ended.
    scratch: Option<TempDir>,
    trial: bool,
    access: Mode,
    /// The mode that the nodes take; that of an older cluster stays.
    awaited: Mode,
    _ports: Held,
}

impl Nodes {
    /// Starts the nodes of `plan`. They are not ready yet: see [`Nodes::ready`].
    ///
    /// # Errors
    /// If a port is taken, a directory cannot be made, or a process cannot be started.
    pub(crate) fn start(plan: &Plan) -> Result<Self, Failure> {
        let (root, scratch) = match &plan.data_dir {
            Some(dir) => (dir.clone(), None),
            None => {
                let scratch = tempfile::Builder::new().prefix("ringfence-").tempdir();
                let scratch = scratch.map_err(|cause| storage(&std::env::temp_dir(), &cause))?;
                (scratch.path().to_path_buf(), Some(scratch))
            }
        };
        // As the nodes' own files: other users may not read them.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&root);
        made.map_err(|cause| storage(&root, &cause))?;
        let awaited = match root.join("n1").exists() {
            true => Mode::Off,
            false => plan.access,
        };
        let (addresses, held) = plan.ports.assign(plan.count)?;
        let nodes = (1..=plan.count)
            .zip(addresses)
            .map(|(number, [client, peer, http])| {
                let name = format!("n{number}");
                let (dir, log) = (root.join(&name), root.join(format!("{name}.log")));
                Node {
                    name,
                    client,
                    peer,
                    http,
                    dir,
                    log,
                    child: None,
                }
            });
        let mut nodes = Self {
            nodes: nodes.collect(),
            scratch,
            trial: plan.trial,
            access: plan.access,
            awaited,
            _ports: held,
        };
        for place in 0..nodes.nodes.len() {
            nodes.run(place)?;
        }
        Ok(nodes)
    }

    /// Starts the process of the node at `place`, for the first time or again.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub(crate) fn run(&mut self, place: usize) -> Result<(), Failure> {
        let arguments = self.arguments(place);
        let node = &mut self.nodes[place];
        let started = std::env::current_exe()
            .and_then(|program| Child::start(program.as_os_str(), &arguments, &node.log));
        node.child = Some(started.map_err(|cause| {
            let message = format!("cannot start node {}: {cause}", node.name);
            Failure::new(exit::UNAVAILABLE, "FAULT", message)
        })?);
        Ok(())
    }

    /// The arguments with which this binary is the node at `place`.
    pub(crate) fn arguments(&self, place: usize) -> Vec<String> {
        let node = &self.nodes[place];
        let members = self
            .nodes
            .iter()
            .map(|node| format!("{}={}", node.name, node.peer));
        let members: Vec<String> = members.collect();
        let mut arguments = vec![
            "serve".into(),
            format!("--name={}", node.name),
            format!("--data-dir={}", node.dir.display()),
            format!("--initial-cluster={}", members.join(",")),
            format!("--listen-client={}", node.client),
            format!("--listen-peer={}", node.peer),
            format!("--listen-http={}", node.http),
            "--token-floor=0".into(),
            format!("--worker-threads={}", self.workers_per_node()),
        ];
        if self.access != Mode::Off {
            arguments.push(format!("--access={}", self.access));
        }
        if self.trial {
            arguments.push(format!("--wal-segment-bytes={TRIAL_SEGMENT_BYTES}"));
        }
        arguments
    }

    /// The nodes share this machine's cores.
    fn workers_per_node(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (cores / self.nodes.len()).max(1)
    }

    /// The nodes, in the order of their names.
    pub(crate) fn all(&self) -> &[Node] {
        &self.nodes
    }

    /// The client addresses of all nodes.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|node| node.client.to_string())
            .collect()
    }

    /// How much rights bind.
    pub(crate) fn access(&self) -> Mode {
        self.access
    }

    /// The arguments of a command that gives all clients without a credential the right to these
    /// leases, by the admin socket of the first node.
    pub(crate) fn grant(&self, names: &str) -> Vec<String> {
        let socket = self.nodes[0].dir.join("admin.sock");
        let arguments = ["access", "grant", "anonymous", "acquire", names];
        [format!("--endpoints=unix:{}", socket.display())]
            .into_iter()
            .chain(arguments.map(str::to_owned))
            .collect()
    }

    /// The data directory, and whether it is removed at the end.
    pub(crate) fn root(&self) -> (PathBuf, bool) {
        let root = self.nodes.first().and_then(|node| node.dir.parent());
        (
            root.map(Path::to_path_buf).unwrap_or_default(),
            self.scratch.is_some(),
        )
    }

    /// Kills the node at `place` with SIGKILL, and waits until it is gone.
    pub(crate) async fn kill(&mut self, place: usize) {
        if let Some(mut child) = self.nodes[place].child.take() {
            child.kill().await;
        }
    }

    /// Waits until a node ends on its own, and tells which one and how. Lasts for ever once none
    /// is left.
    pub(crate) async fn one_ended(&mut self) -> (usize, Ended) {
        let waits = self
            .nodes
            .iter_mut()
            .enumerate()
            .filter_map(|(place, node)| {
                let child = node.child.as_mut()?;
                Some(Box::pin(async move { (place, child.ended().await) }))
            });
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        let ((place, ended), _, rest) = futures_util::future::select_all(waits).await;
        drop(rest);
        self.nodes[place].child = None;
        (place, ended)
    }

    /// Stops all nodes: SIGTERM, then SIGKILL to those that take longer than five seconds. A
    /// temporary data directory is removed.
    pub(crate) async fn stop(mut self) {
        let children = self.nodes.iter_mut().filter_map(|node| node.child.take());
        let stops = children.map(|child| child.stop(STOP_LIMIT));
        futures_util::future::join_all(stops).await;
    }
}

impl Node {
    /// The process id while the node runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::pid)
    }

    /// The last lines of what the node wrote, for an error message.
    pub(crate) fn last_words(&self) -> String {
        const LINES: usize = 5;
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        last.iter()
            .map(|line| format!("\n  {} | {line}", self.name))
            .collect()
    }
}

fn storage(path: &Path, cause: &std::io::Error) -> Failure {
    let message = format!("cannot use {} for the nodes' data: {cause}", path.display());
    Failure::new(exit::UNAVAILABLE, "FAULT", message)
        .hint("name a directory that you may write to, with --data-dir or in TMPDIR")
}
