//! Pods and volumes that are lost.

use tokio::runtime::Runtime;

use super::tell_members;
use crate::cluster::{Cluster, LONG, Member, names};
use crate::program::until;
use crate::say::{self, Watch};

fn id_of(members: &[Member], name: &str) -> Result<u64, String> {
    let found = members.iter().find(|member| member.name == name);
    let found = found.map(|member| member.node);
    found.ok_or_else(|| format!("{name} is not among {members:?}"))
}

pub(super) fn a_deleted_pod_keeps_its_data(cluster: &Cluster, _: &Runtime) -> Result<(), String> {
    let watch = Watch::start();
    let pod = "ringfence-1";
    let before = id_of(&cluster.members("ringfence-0")?, pod)?;
    let uid = cluster.uid(pod)?;
    let delete = format!("delete pod {pod} --namespace=ringfence --grace-period=0 --force");
    cluster.kubectl.run(&delete)?;
    cluster.await_next(pod, &uid)?;
    let members = cluster.await_voters("ringfence-0", &names(3))?;
    let after = id_of(&members, pod)?;
    if after != before {
        return Err(format!("it was node {before} and is node {after}"));
    }
    say::shown(
        watch,
        &format!("deleted with force, {pod} came back as node {after} with its data"),
    );
    Ok(())
}

pub(super) fn a_lost_volume_heals_by_itself(cluster: &Cluster, _: &Runtime) -> Result<(), String> {
    let watch = Watch::start();
    let pod = "ringfence-1";
    let before = id_of(&cluster.members("ringfence-0")?, pod)?;
    let uid = cluster.uid(pod)?;
    cluster.lose_volume(pod)?;
    cluster.await_next(pod, &uid)?;
    let members = cluster.await_voters("ringfence-0", &names(3))?;
    let after = id_of(&members, pod)?;
    if after <= before {
        return Err(format!("it was node {before} and is node {after}"));
    }
    let told = "its volume lost, ringfence-1 came back by itself with --replace-on-data-loss";
    say::shown(watch, told);
    tell_members(&members);
    Ok(())
}

pub(super) fn a_lost_volume_waits_for_a_person(
    cluster: &Cluster,
    _: &Runtime,
) -> Result<(), String> {
    let watch = Watch::start();
    let pod = "ringfence-2";
    let former = id_of(&cluster.members("ringfence-0")?, pod)?;
    let uid = cluster.uid(pod)?;
    cluster.lose_volume(pod)?;
    let why = until("it says why it is not ready", LONG, || {
        if cluster.uid(pod)? == uid {
            return Err("the former Pod is there still".to_owned());
        }
        let (status, why) = cluster.http(pod, "/readyz")?;
        let told = status == 503 && why.contains("--replaces");
        told.then_some(why.clone()).ok_or(why)
    })?;
    let logged = cluster
        .kubectl
        .run(&format!("logs {pod} --namespace=ringfence"))?;
    if !logged.contains("--replace-on-data-loss") {
        return Err(format!("its log does not say what to do:\n{logged}"));
    }
    let waiting = cluster.members("ringfence-0")?;
    let voters = waiting.iter().filter(|member| member.role != "learner");
    if !voters.clone().any(|member| member.node == former) {
        return Err(format!(
            "it has taken the vote of node {former}: {waiting:?}"
        ));
    }
    say::shown(
        watch,
        "without it, a node whose volume was lost has no vote, is not ready, and says:",
    );
    say::note(why.trim());

    let watch = Watch::start();
    let command = why
        .split('`')
        .nth(1)
        .and_then(|command| command.strip_prefix("ringfence "));
    let command = command.ok_or_else(|| format!("no command in: {why}"))?;
    cluster.ringfence("ringfence-0", command)?;
    let members = cluster.await_voters("ringfence-0", &names(3))?;
    cluster.await_ready(3)?;
    say::shown(watch, &format!("`ringfence {command}` gave it the vote"));
    tell_members(&members);
    Ok(())
}
