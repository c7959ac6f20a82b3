//! From manifests to a cluster that serves.

use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Runtime;

use super::{await_service, outside, tell_members};
use crate::cluster::{Cluster, LONG, names};
use crate::load;
use crate::plane::NODE;
use crate::program::until;
use crate::say::{self, Watch};

/// The lease that is shown to Kubernetes, and its object.
const LEASE: (&str, &str) = ("k8s/default/leader", "leader");

/// A name by which a client might hope to get at a kubelet's own Lease.
const KUBELETS: &str = "k8s/kube-node-lease/node";

pub(super) fn three_nodes_form_a_cluster(cluster: &Cluster, _: &Runtime) -> Result<(), String> {
    let watch = Watch::start();
    let overlay = cluster.manifests("overlays/dev");
    cluster
        .kubectl
        .run(&format!("apply --kustomize={overlay}"))?;
    cluster.await_ready(3)?;
    let members = cluster.await_voters("ringfence-0", &names(3))?;
    let ids: Vec<u64> = members.iter().map(|member| member.node).collect();
    if ids != [1, 2, 3] {
        return Err(format!("the first members are {members:?}"));
    }
    say::shown(
        watch,
        "`kubectl apply -k deploy/kubernetes/overlays/dev` formed a cluster of three",
    );
    tell_members(&members);
    let before = generation(cluster)?;
    cluster
        .kubectl
        .run(&format!("apply --kustomize={overlay}"))?;
    let after = generation(cluster)?;
    (before == after)
        .then_some(())
        .ok_or(format!("applied again, generation {before} became {after}"))
}

/// It rises with every change of what is wished for.
fn generation(cluster: &Cluster) -> Result<Value, String> {
    let set = cluster
        .kubectl
        .get("statefulset ringfence --namespace=ringfence")?;
    Ok(set["metadata"]["generation"].clone())
}

pub(super) fn a_client_outside_acquires(
    cluster: &Cluster,
    runtime: &Runtime,
) -> Result<(), String> {
    let watch = Watch::start();
    await_service(runtime)?;
    let (name, object) = LEASE;
    let (lease, kubelets) = runtime.block_on(async {
        let client = outside().await?;
        let session = load::session(&client, "outside").await?;
        let kubelets = load::acquire(&session, KUBELETS).await?;
        Ok::<_, String>((load::acquire(&session, name).await?, kubelets))
    })?;
    say::shown(
        watch,
        &format!("a client outside the Pods acquired {name} by the Service"),
    );

    let watch = Watch::start();
    let token = lease.token().get().to_string();
    let shown = until("the Lease shows the holder", LONG, || {
        let found = cluster
            .kubectl
            .get(&format!("lease {object} --namespace=default"))?;
        let holder = &found["spec"]["holderIdentity"];
        let told = &found["metadata"]["annotations"]["ringfence.io/token"];
        (holder == "outside" && *told == token)
            .then(|| {
                cluster
                    .kubectl
                    .run(&format!("get lease {object} --namespace=default"))
            })
            .ok_or_else(|| found.to_string())?
    })?;
    say::shown(
        watch,
        "its Lease is mirrored, by the in-cluster configuration of a node",
    );
    shown.lines().for_each(say::note);
    kubelets_is_its_own(cluster)?;
    drop(kubelets);

    let watch = Watch::start();
    let released = runtime.block_on(tokio::time::timeout(
        Duration::from_secs(10),
        lease.release(),
    ));
    let released = released.map_err(|_| "the release took over 10 s")?;
    released.map_err(|error| error.to_string())?;
    until("the Lease shows no holder", LONG, || {
        let found = cluster
            .kubectl
            .get(&format!("lease {object} --namespace=default"))?;
        let holder = found["spec"]["holderIdentity"].as_str().unwrap_or_default();
        holder
            .is_empty()
            .then_some(())
            .ok_or_else(|| found.to_string())
    })?;
    say::shown(watch, "and shows that it was released");
    Ok(())
}

/// Looked at when a lease that was granted later is shown.
fn kubelets_is_its_own(cluster: &Cluster) -> Result<(), String> {
    // The kubelet makes it some seconds after its node.
    let found = until("the kubelet has its Lease", LONG, || {
        cluster
            .kubectl
            .get(&format!("lease {NODE} --namespace=kube-node-lease"))
    })?;
    let annotations = &found["metadata"]["annotations"];
    if found["spec"]["holderIdentity"] != NODE || !annotations.is_null() {
        return Err(format!("the kubelet's Lease became {found}"));
    }
    say::note(&format!(
        "the kubelet's own is as it was, though {KUBELETS} was acquired"
    ));
    Ok(())
}
