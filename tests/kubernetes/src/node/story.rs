//! What is shown, in the order in which it is shown: each chapter leaves a whole cluster to the next.

mod away;
mod beside;
mod chart;
mod controller;
mod eviction;
mod forming;
mod lost;
mod pods;
mod probes;
mod production;
mod rolling;
mod scale;

use std::time::Duration;

use ringfence_client::Client;
use tokio::runtime::{Builder, Runtime};

use crate::cluster::Cluster;
use crate::program::until;
use crate::{load, say};

/// Where clients outside find the cluster: its Service, by name.
const SERVICE: &str = "ringfence.ringfence:7420";
/// How long a Service may take to lead to Pods that have just become ready.
const SERVICE_MAX: Duration = Duration::from_secs(30);

/// Tells all of a story: that of the chart if it has what that needs, else that of the overlays. The error
/// names what did not hold.
pub(crate) fn tell(cluster: &Cluster) -> Result<(), String> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    // Timers of what is not inside a task are its, too.
    let _entered = runtime.enter();
    match &cluster.charts {
        Some(charts) => chart::tell(cluster, charts, &runtime),
        None => overlays(cluster, &runtime),
    }
}

fn overlays(cluster: &Cluster, runtime: &Runtime) -> Result<(), String> {
    type Chapter = fn(&Cluster, &Runtime) -> Result<(), String>;
    let chapters: [(&str, Chapter); 15] = [
        (
            "applying the manifests forms a cluster of three",
            forming::three_nodes_form_a_cluster,
        ),
        (
            "a client outside acquires, and kubectl shows it",
            forming::a_client_outside_acquires,
        ),
        (
            "the canary and the webhook run as Pods",
            beside::canary_and_webhook,
        ),
        (
            "of two fenced controllers one writes",
            controller::the_other_replica_counts_on,
        ),
        (
            "a Pod deleted with force comes back with its data",
            lost::a_deleted_pod_keeps_its_data,
        ),
        ("evictions are for one at a time", eviction::one_at_a_time),
        (
            "a lost volume heals by itself when asked to",
            lost::a_lost_volume_heals_by_itself,
        ),
        (
            "a rolling restart loses no session",
            rolling::a_rolling_restart_loses_no_session,
        ),
        (
            "a lost volume waits for a person otherwise",
            lost::a_lost_volume_waits_for_a_person,
        ),
        ("one command scales up", scale::up_to_five),
        (
            "a minute without the API server: grants go on, a stuck node is restarted, a cut-off one not",
            away::grants_go_on_for_a_minute,
        ),
        ("one command scales down", scale::down_to_three),
        (
            "what left comes back as a new member",
            scale::up_again_and_down,
        ),
        ("no stale write has passed", beside::no_write_passed),
        (
            "the overlay production, by the document: TLS, rights, a restart",
            production::by_the_document,
        ),
    ];
    for (claim, chapter) in chapters {
        chapter(cluster, runtime).map_err(|why| format!("{claim}: {why}"))?;
    }
    Ok(())
}

/// A client outside the Pods.
async fn outside() -> Result<Client, String> {
    load::client(&[SERVICE.to_owned()]).await
}

/// Waits until a client outside is served by the Service.
fn await_service(runtime: &Runtime) -> Result<(), String> {
    until("the Service leads to a node", SERVICE_MAX, || {
        let open = async {
            let client = outside().await?;
            load::session(&client, "first").await
        };
        let opened = runtime.block_on(tokio::time::timeout(Duration::from_secs(5), open));
        opened
            .map_err(|_| "no answer within 5 s".to_owned())?
            .map(drop)
    })
}

/// Says what the members are.
fn tell_members(members: &[crate::cluster::Member]) {
    let shown: Vec<String> = members
        .iter()
        .map(|member| format!("{} is node {} ({})", member.name, member.node, member.role))
        .collect();
    say::note(&shown.join(", "));
}
