//! What probes make of a node that gets nowhere: one that is stuck, and one that is only alone.

use tokio::runtime::Runtime;

use crate::cluster::{Cluster, LONG, is_ready, names};
use crate::program::{call, until};
use crate::say::{self, Watch};

/// The one that is stopped where it stands.
const STUCK: &str = "ringfence-3";
/// The one that no packet of another node reaches.
const ALONE: &str = "ringfence-4";

/// Both at once: of five nodes, three are a majority.
pub(super) fn stuck_and_cut_off(cluster: &Cluster, _: &Runtime) -> Result<(), String> {
    let watch = Watch::start();
    let before = [cluster.restarts(STUCK)?, cluster.restarts(ALONE)?];
    let address = cluster.address(ALONE)?;
    let rules = |what: &str| {
        ["--destination-port", "--source-port"]
            .into_iter()
            .try_for_each(|port| {
                ["--source", "--destination"]
                    .into_iter()
                    .try_for_each(|end| {
                        let rule = [
                            what,
                            "FORWARD",
                            end,
                            &address,
                            "--protocol",
                            "tcp",
                            port,
                            "7421",
                        ];
                        let rule = [&rule[..], &["--jump", "DROP"]].concat();
                        call("iptables", &rule).map(drop)
                    })
            })
    };
    rules("--insert")?;
    stop_process_of(cluster, STUCK)?;
    until("the stuck node is started again", LONG, || {
        let restarts = cluster.restarts(STUCK)?;
        (restarts > before[0])
            .then_some(())
            .ok_or(format!("{restarts} restarts"))
    })?;
    let took = watch.so_far();
    let alone = cluster.pod(ALONE)?;
    let restarts = cluster.restarts(ALONE)?;
    let (status, why) = cluster.http(ALONE, "/readyz")?;
    rules("--delete")?;
    if is_ready(&alone) || status != 503 {
        return Err(format!(
            "cut off, {ALONE} calls itself ready ({status}: {why})"
        ));
    }
    if restarts != before[1] {
        return Err(format!("{ALONE} was restarted, which cured nothing"));
    }
    cluster.await_ready(5)?;
    let _members = cluster.await_voters("ringfence-0", &names(5))?;
    let told = format!(
        "stopped where it stood, {STUCK} was restarted after {:.1} s; {ALONE}, cut off as long, was \
         not, and was not ready: {}",
        took.as_secs_f64(),
        why.trim()
    );
    say::shown(watch, &told);
    Ok(())
}

/// The process of a Pod's container is a process of ours too.
fn stop_process_of(cluster: &Cluster, pod: &str) -> Result<(), String> {
    let found = cluster.pod(pod)?;
    let id = found["status"]["containerStatuses"][0]["containerID"].as_str();
    let id = id.and_then(|id| id.strip_prefix("containerd://"));
    let id = id.ok_or_else(|| format!("{pod} has no container"))?;
    let tasks = call(
        "ctr",
        &[
            "--address",
            crate::containers::SOCKET,
            "--namespace",
            "k8s.io",
            "tasks",
            "list",
        ],
    )?;
    let line = tasks.lines().find(|line| line.starts_with(id));
    let pid = line.and_then(|line| line.split_whitespace().nth(1));
    let pid = pid.ok_or_else(|| format!("no task {id} among:\n{tasks}"))?;
    call("kill", &["-s", "STOP", pid]).map(drop)
}
