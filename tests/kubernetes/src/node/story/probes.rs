//! What probes make of nodes that get nowhere: one that is stuck, and one that is only alone.

use k8s_openapi::jiff::Timestamp;

use crate::cluster::{Cluster, LONG, is_ready, names};
use crate::program::{call, until};

/// The one that is stopped where it stands.
const STUCK: &str = "ringfence-3";
/// The one that no packet of another node reaches.
const ALONE: &str = "ringfence-4";
/// How many are left: of five nodes, three are a majority.
pub(super) const OTHERS: usize = 3;

/// Both of them, and how often they had been restarted.
pub(super) struct GetNowhere {
    restarts: [u64; 2],
    since: Timestamp,
    cut: Cut,
}

impl GetNowhere {
    /// From now on.
    pub(super) fn begin(cluster: &Cluster) -> Result<Self, String> {
        let restarts = [cluster.restarts(STUCK)?, cluster.restarts(ALONE)?];
        let address = cluster.address(ALONE)?;
        let stuck = process_of(cluster, STUCK)?;
        let cut = Cut::off(address)?;
        call("kill", &["-s", "STOP", &stuck])?;
        Ok(Self {
            restarts,
            since: Timestamp::now(),
            cut,
        })
    }

    /// What came of it, of which no process can have informed the kubelet until `told`. Afterwards
    /// all five are there.
    pub(super) fn end(self, cluster: &Cluster, told: Timestamp) -> Result<String, String> {
        let ended = until("the stuck node is started again", LONG, || {
            let restarts = cluster.restarts(STUCK)?;
            let ended = cluster.last_end(STUCK)?;
            (restarts > self.restarts[0])
                .then_some(ended)
                .ok_or(format!("{restarts} restarts"))
        })?;
        if ended >= told {
            return Err(format!("{STUCK} ended at {ended}, and not before {told}"));
        }
        until("the cut-off node is shown as not ready", LONG, || {
            let alone = cluster.pod(ALONE)?;
            let shown = !is_ready(&alone);
            shown.then_some(()).ok_or(alone["status"].to_string())
        })?;
        let (status, why) = cluster.http(ALONE, "/readyz")?;
        let restarts = cluster.restarts(ALONE)?;
        drop(self.cut);
        if status != 503 {
            return Err(format!(
                "cut off, {ALONE} calls itself ready ({status}: {why})"
            ));
        }
        if restarts != self.restarts[1] {
            return Err(format!("{ALONE} was restarted, which cured nothing"));
        }
        cluster.await_ready(5)?;
        let _members = cluster.await_voters("ringfence-0", &names(5))?;
        let took = ended.duration_since(self.since).as_secs();
        Ok(format!(
            "meanwhile {STUCK}, stopped where it stood, was restarted after {took} s; {ALONE}, cut off \
             as long, was not, and was not ready: {}",
            why.trim()
        ))
    }
}

/// A node that is cut off from the others; it is not once this value goes.
struct Cut(String);

impl Cut {
    fn off(address: String) -> Result<Self, String> {
        let cut = Self(address);
        cut.rules("--insert")?;
        Ok(cut)
    }

    /// The nodes' own port, both ways, whichever client called.
    fn rules(&self, what: &str) -> Result<(), String> {
        for port in ["--destination-port", "--source-port"] {
            for end in ["--source", "--destination"] {
                let from = [what, "FORWARD", end, &self.0];
                let which = ["--protocol", "tcp", port, "7421", "--jump", "DROP"];
                call("iptables", &[&from[..], &which].concat())?;
            }
        }
        Ok(())
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        // Whatever comes next says so if it still is.
        drop(self.rules("--delete"));
    }
}

/// The process of a Pod's container, which is a process of ours too.
fn process_of(cluster: &Cluster, pod: &str) -> Result<String, String> {
    let found = cluster.pod(pod)?;
    let id = found["status"]["containerStatuses"][0]["containerID"].as_str();
    let id = id.and_then(|id| id.strip_prefix("containerd://"));
    let id = id.ok_or_else(|| format!("{pod} has no container"))?;
    let socket = crate::containers::SOCKET;
    let list = ["--namespace", "k8s.io", "tasks", "list"];
    let tasks = call("ctr", &[&["--address", socket][..], &list].concat())?;
    let line = tasks.lines().find(|line| line.starts_with(id));
    let pid = line.and_then(|line| line.split_whitespace().nth(1));
    let pid = pid.ok_or_else(|| format!("no task {id} among:\n{tasks}"))?;
    Ok(pid.to_owned())
}
