//! More nodes and fewer, by one command.

use tokio::runtime::Runtime;

use super::{outside, tell_members};
use crate::cluster::{Cluster, LONG, names};
use crate::load::Load;
use crate::program::until;
use crate::say::{self, Watch};

fn scale(cluster: &Cluster, runtime: &Runtime, replicas: usize) -> Result<(), String> {
    let load = Load::start(runtime, outside)?;
    let watch = Watch::start();
    let command =
        format!("scale statefulset ringfence --namespace=ringfence --replicas={replicas}");
    cluster.kubectl.run(&command)?;
    cluster.await_ready(replicas as u64)?;
    let members = cluster.await_voters("ringfence-0", &names(replicas))?;
    let outcome = load.end(runtime)?;
    let told = format!(
        "`kubectl {command}` made {replicas} voters under load; no session lost, longest gap {} ms",
        outcome.gap.as_millis()
    );
    say::shown(watch, &told);
    tell_members(&members);
    Ok(())
}

pub(super) fn up_to_five(cluster: &Cluster, runtime: &Runtime) -> Result<(), String> {
    scale(cluster, runtime, 5)
}

pub(super) fn down_to_three(cluster: &Cluster, runtime: &Runtime) -> Result<(), String> {
    scale(cluster, runtime, 3)?;
    until("the Pods are gone", LONG, || {
        let gone = ["ringfence-3", "ringfence-4"].map(|pod| cluster.pod(pod).is_err());
        (gone == [true, true])
            .then_some(())
            .ok_or(format!("{gone:?}"))
    })
}

/// The volumes of those that left are there still, and empty.
pub(super) fn up_again_and_down(cluster: &Cluster, runtime: &Runtime) -> Result<(), String> {
    scale(cluster, runtime, 4)?;
    scale(cluster, runtime, 3)
}
