//! What `helm uninstall` keeps, and that a release of the same name goes on with it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::two::shows;
use super::{Stage, TEAMS};
use crate::cluster::LONG;
use crate::load::{acquire, session};
use crate::program::until;
use crate::say::{self, Watch};

/// What of the namespace is not the release's.
const KEPT: [&str; 6] = [
    "persistentvolumeclaim/data-ringfence-0",
    "persistentvolumeclaim/data-ringfence-1",
    "persistentvolumeclaim/data-ringfence-2",
    "secret/helm-test",
    "secret/ringfence-clients-tls",
    "secret/ringfence-peers-tls",
];

pub(super) fn keeps_what_the_notes_say(stage: &Stage<'_>) -> Result<(), String> {
    let watch = Watch::start();
    let [team, _] = TEAMS;
    let lease = format!("k8s/{team}-apps/leader");
    let cluster = cluster_id(stage, team)?;
    let before = stage.runtime.block_on(granted(stage, team, &lease))?;
    shows(stage, team, "", &before.to_string())?;

    let at = format!("--namespace {team}");
    stage
        .operator
        .types(&format!("helm uninstall ringfence {at}"))?;
    until("what is left is what the notes say", LONG, || {
        let left = left(stage, team)?;
        let expected = KEPT.map(str::to_owned).into();
        (left == expected).then_some(()).ok_or(format!("{left:?}"))
    })?;
    whole(stage, team)?;
    shows(stage, team, "", &before.to_string())?;
    say::shown(
        watch,
        "`helm uninstall` kept the volumes, the given Secrets and the Lease with its token, and nothing else",
    );

    let watch = Watch::start();
    stage.operator.types(&format!(
        "helm install ringfence deploy/helm/ringfence {at} --values leases.yaml \
         --set mirror.namespace={team}-apps\nkubectl {at} rollout status statefulset/ringfence"
    ))?;
    let (after, found) = (
        stage.runtime.block_on(granted(stage, team, &lease))?,
        cluster_id(stage, team)?,
    );
    if found != cluster {
        return Err(format!("cluster {cluster} is now {found}"));
    }
    if after <= before {
        return Err(format!("the token {before} became {after}"));
    }
    shows(stage, team, "", &after.to_string())?;
    say::shown(
        watch,
        "a release of the same name goes on as the same cluster, with its rights, tokens and Lease",
    );
    Ok(())
}

/// Acquires a lease and releases it; its token.
pub(super) async fn granted(stage: &Stage<'_>, team: &str, lease: &str) -> Result<u64, String> {
    let client = stage.client(team, team, team).await?;
    let held = acquire(&session(&client, team).await?, lease).await?;
    let token = held.token().get();
    let released = held.release().await;
    released.map_err(|error| error.to_string())?;
    Ok(token)
}

pub(super) fn cluster_id(stage: &Stage<'_>, team: &str) -> Result<String, String> {
    let status = stage.status(team)?;
    let id = status["cluster"].as_str().map(str::to_owned);
    id.ok_or_else(|| format!("a status without a cluster: {status}"))
}

/// What there is in the namespace, but for what Kubernetes puts into each.
fn left(stage: &Stage<'_>, team: &str) -> Result<BTreeSet<String>, String> {
    let kinds = "all,pvc,secrets,configmaps,serviceaccounts,roles,rolebindings,\
                 networkpolicies,poddisruptionbudgets,leases";
    let line = format!("get {kinds} --namespace={team} --output=name");
    let told = stage.cluster.kubectl.run(&line)?;
    let own = |line: &&str| !line.ends_with("/kube-root-ca.crt") && !line.ends_with("/default");
    Ok(told.lines().filter(own).map(str::to_owned).collect())
}

/// Nothing of the release is left outside its namespace.
fn whole(stage: &Stage<'_>, team: &str) -> Result<(), String> {
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let selector = "--selector=app.kubernetes.io/part-of=ringfence";
    let list = stage
        .cluster
        .kubectl
        .get(&format!("{kinds} --all-namespaces {selector}"))?;
    let items = list["items"].as_array().ok_or("no list")?;
    let names = items.iter().map(|item| &item["metadata"]["name"]);
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    let ours = |name: &&str| name.contains(&format!("{team}.ringfence"));
    let (ours, others): (Vec<&str>, Vec<&str>) = names.into_iter().partition(ours);
    match ours.is_empty() && !others.is_empty() {
        true => Ok(()),
        false => Err(format!("left are {ours:?}, of others {others:?}")),
    }
}
