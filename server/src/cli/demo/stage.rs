//! The demo's stage: a cluster of three, and what is done to it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_client::{Client, EndCause, Watch, WatchItem};
use ringfence_core::Mode;

use super::actor::{Actor, not_told};
use crate::cli::nodes::{Nodes, Plan, Ports};
use crate::cli::{Failure, duration, exit};

/// The lease that guards the balance.
pub(super) const LEASE: &str = "bank/balance";
/// The leases that the demo has a right to: a watch is one of all names that begin as the lease's.
const LEASES: &str = "bank/*";
/// The TTL of the workers' sessions: soon over, and long enough for a change of leader.
pub(super) const TTL: Duration = Duration::from_secs(5);
/// How long the cluster may take for a step.
const STEP_LIMIT: Duration = Duration::from_secs(12);
/// Between two looks at who leads.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running cluster of three.
pub(super) struct Stage {
    nodes: Nodes,
    leader: usize,
    dead: Option<usize>,
    watch: Watch,
}

impl Stage {
    /// Starts the cluster and waits until it serves.
    ///
    /// # Errors
    /// If it does not.
    pub(super) async fn set(access: Mode) -> Result<Self, Failure> {
        let plan = Plan {
            count: 3,
            ports: Ports::Free,
            data_dir: None,
            trial: true,
            access,
        };
        let mut nodes = Nodes::start(&plan)?;
        let leader = match nodes.ready().await {
            Ok(leader) => leader,
            Err(failure) => {
                nodes.stop().await;
                return Err(failure);
            }
        };
        if access == Mode::Enforced
            && let Err(failure) = grant(&nodes).await
        {
            nodes.stop().await;
            return Err(failure);
        }
        let watch = match watch(&nodes).await {
            Ok(watch) => watch,
            Err(failure) => {
                nodes.stop().await;
                return Err(failure);
            }
        };
        Ok(Self {
            nodes,
            leader,
            dead: None,
            watch,
        })
    }

    /// The arguments of the command that gave the workers their right, if they need one.
    pub(super) fn granted(&self) -> Option<String> {
        let needed = self.nodes.access() == Mode::Enforced;
        needed.then(|| format!("ringfence {}", self.nodes.grant(LEASES).join(" ")))
    }

    /// Names, process ids, and who leads.
    pub(super) fn cast(&self) -> String {
        let nodes = self.nodes.all().iter();
        let nodes = nodes.map(|node| format!("{} (pid {})", node.name, node.pid().unwrap_or(0)));
        let nodes: Vec<String> = nodes.collect();
        format!(
            "{}; {} leads",
            nodes.join(", "),
            self.nodes.all()[self.leader].name
        )
    }

    /// Starts a store.
    ///
    /// # Errors
    /// If it does not listen in time.
    pub(super) async fn store(
        &self,
        act: u8,
        guarded: bool,
    ) -> Result<(Actor, SocketAddr), Failure> {
        let database = self.root().join(format!("balance-{act}.db"));
        let mut arguments = vec![
            "demo-store".to_owned(),
            format!("--database={}", database.display()),
            format!("--lease={LEASE}"),
        ];
        if guarded {
            arguments.push("--guarded".to_owned());
        }
        let mut store = Actor::start("store", &arguments, &self.root().join("store.log"))?;
        let address = store.listens().await?;
        Ok((store, address))
    }

    /// Starts a worker that waits for its cue.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn worker(
        &self,
        name: &str,
        store: SocketAddr,
        adds: &[i64],
        thinks: &str,
    ) -> Result<Actor, Failure> {
        let adds: Vec<String> = adds.iter().map(ToString::to_string).collect();
        let arguments = [
            "demo-worker".to_owned(),
            format!("--endpoints={}", self.nodes.endpoints().join(",")),
            format!("--name=worker-{name}"),
            format!("--lease={LEASE}"),
            format!("--ttl={}ms", duration::millis(TTL)),
            format!("--store={store}"),
            format!("--add={}", adds.join(",")),
            format!("--think={thinks}"),
        ];
        let log = self.root().join(format!("worker-{name}.log"));
        Actor::start(&format!("worker {name}"), &arguments, &log)
    }

    /// Waits until the cluster says that the grant with this token has expired.
    ///
    /// # Errors
    /// If it does not say so in time.
    pub(super) async fn lease_expires(&mut self, token: i64) -> Result<(), Failure> {
        let ends = async {
            loop {
                match self.watch.next().await {
                    Some(Ok(WatchItem::Ended { ended, .. }))
                        if i64::try_from(ended.token.get()) == Ok(token) =>
                    {
                        return Ok(ended.cause);
                    }
                    Some(Ok(_)) => {}
                    Some(Err(refused)) => return Err(format!("the watch ended: {refused}")),
                    None => return Err("the watch ended".to_owned()),
                }
            }
        };
        let seen = match tokio::time::timeout(STEP_LIMIT, ends).await {
            Ok(Ok(Some(EndCause::Expired))) => return Ok(()),
            Ok(Ok(cause)) => format!("{cause:?}"),
            Ok(Err(broken)) => broken,
            Err(_) => format!("no end of that grant within {} s", STEP_LIMIT.as_secs()),
        };
        Err(not_told("the cluster", "EXPIRED", &seen))
    }

    /// Kills the leader and returns its name.
    ///
    /// # Errors
    /// If no node leads.
    pub(super) async fn kill_leader(&mut self) -> Result<String, Failure> {
        let leader = self.nodes.leader().await;
        let leader = leader.ok_or_else(|| not_told("the cluster", "who leads", "nobody"))?;
        self.nodes.kill(leader).await;
        self.dead = Some(leader);
        Ok(self.nodes.all()[leader].name.clone())
    }

    /// Waits until another node leads, and returns its name.
    ///
    /// # Errors
    /// If none does in time.
    pub(super) async fn new_leader(&mut self) -> Result<String, Failure> {
        let nodes = &self.nodes;
        let elected = async {
            loop {
                // One that was killed has no process, so it is never the answer.
                if let Some(leader) = nodes.leader().await {
                    return leader;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let elected = tokio::time::timeout(STEP_LIMIT, elected).await;
        self.leader =
            elected.map_err(|_| not_told("the cluster", "a new leader", "none within 12 s"))?;
        Ok(self.nodes.all()[self.leader].name.clone())
    }

    /// Starts the node that was killed again, and waits until it has caught up. Returns its name.
    ///
    /// # Errors
    /// If it does not.
    pub(super) async fn heal(&mut self) -> Result<String, Failure> {
        let Some(dead) = self.dead.take() else {
            return Ok(String::new());
        };
        self.nodes.run(dead)?;
        self.leader = self.nodes.ready().await?;
        Ok(self.nodes.all()[dead].name.clone())
    }

    /// Stops the nodes; nothing of them is left.
    pub(super) async fn strike(self) {
        self.nodes.stop().await;
    }

    fn root(&self) -> PathBuf {
        self.nodes.root().0
    }
}

/// Gives the workers the right to their lease, as an operator does.
async fn grant(nodes: &Nodes) -> Result<(), Failure> {
    let failed = |cause: &dyn std::fmt::Display| {
        let message = format!("cannot give the workers a right: {cause}");
        Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message)
    };
    let program = std::env::current_exe().map_err(|cause| failed(&cause))?;
    let mut command = tokio::process::Command::new(program);
    command.args(nodes.grant(LEASES)).kill_on_drop(true);
    let done = command.output().await.map_err(|cause| failed(&cause))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(failed(&String::from_utf8_lossy(&done.stderr).trim())),
    }
}

/// Watches the demo's lease from its present state on, at another node when one is killed.
async fn watch(nodes: &Nodes) -> Result<Watch, Failure> {
    let failed = |cause: String| {
        let message = format!("cannot watch leases: {cause}");
        Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message)
    };
    let client = Client::connect(nodes.endpoints()).await;
    let client = client.map_err(|cause| failed(cause.to_string()))?;
    let mut watch = client.watch(LEASE);
    loop {
        match watch.next().await {
            Some(Ok(WatchItem::Reached(_))) => return Ok(watch),
            Some(Ok(_)) => {}
            Some(Err(refused)) => return Err(failed(refused.to_string())),
            None => return Err(failed("it ended".to_owned())),
        }
    }
}
