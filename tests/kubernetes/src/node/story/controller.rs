//! The example of a controller, as Pods.

use serde_json::Value;
use tokio::runtime::Runtime;

use super::pods::{apply, pods, ready};
use crate::cluster::{Cluster, LONG};
use crate::program::until;
use crate::say::{self, Watch};

/// Its namespace, the label of its Pods; it shows no figures.
const CONTROLLER: (&str, &str, u16) = ("shop", "controller", 0);
/// How many writes are waited for.
const WRITES: u64 = 3;

/// What it has written: how much it has counted, and under which token.
#[derive(Clone, Copy, Debug)]
struct Ledger {
    count: u64,
    token: u64,
}

/// Applies the policies and the manifests by the commands of its README; its namespace is there.
pub(super) fn begin(cluster: &Cluster) -> Result<(), String> {
    apply(
        cluster,
        "ringfence-0",
        "kube policy --lease shop/leader --resource configmaps --carrier impersonate \
         --service-account shop/controller --without-lease allow",
    )?;
    let folder = cluster.manifests("../examples/fenced-controller/kubernetes");
    let line = format!("apply --kustomize={folder}");
    cluster.kubectl.run(&line).map(drop)
}

/// Two replicas, of which one counts; it is asked to go, and the other one counts on.
pub(super) fn the_other_replica_counts_on(cluster: &Cluster, _: &Runtime) -> Result<(), String> {
    let watch = Watch::start();
    ready(cluster, CONTROLLER, 2)?;
    let first = until("the ledger is written", LONG, || {
        let ledger = ledger(cluster)?;
        let enough = ledger.count >= WRITES;
        enough.then_some(ledger).ok_or(format!("{ledger:?}"))
    })?;
    say::shown(
        watch,
        "of two replicas of the fenced controller one leads and writes",
    );

    let watch = Watch::start();
    let lease = cluster.kubectl.get("lease leader --namespace=shop")?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let pods = pods(cluster, CONTROLLER)?;
    let names = pods
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str());
    let leader = names.into_iter().find(|name| holder.starts_with(name));
    let leader = leader.ok_or_else(|| format!("{holder:?} is no Pod"))?;
    let line = format!("delete pod {leader} --namespace=shop --wait=false");
    cluster.kubectl.run(&line)?;
    let next = until("the other one writes", LONG, || {
        let ledger = ledger(cluster)?;
        let later = ledger.token > first.token;
        later.then_some(ledger).ok_or(format!("{ledger:?}"))
    })?;
    if next.count <= first.count {
        return Err(format!("{next:?} follows {first:?}"));
    }
    let told = format!(
        "its Pod deleted, the other one writes on: {} under token {}, {} under token {}",
        first.count, first.token, next.count, next.token
    );
    say::shown(watch, &told);
    let scale = "scale deployment controller --namespace=shop --replicas=0";
    cluster.kubectl.run(scale).map(drop)
}

fn ledger(cluster: &Cluster) -> Result<Ledger, String> {
    let found = cluster.kubectl.get("configmap ledger --namespace=shop")?;
    let number = |value: &Value| value.as_str()?.parse().ok();
    let ledger = number(&found["data"]["count"]).zip(number(&found["data"]["token"]));
    let (count, token) = ledger.ok_or_else(|| found["data"].to_string())?;
    Ok(Ledger { count, token })
}
