//! Halfway, back and up: what an operator does who finds a fault of a new release in time.

use std::time::Duration;

use ringfence_tests::{Cluster, Load, Options, Signal};
use tokio::time::sleep;

use crate::{LEVEL_ACCESS, Moving, SHAPE, holder_of, older, restart_as, secs, wait_for_level};

/// How long a node is stopped: longer than an election takes, shorter than a session lasts.
const STOPPED: Duration = secs(4);

/// Kills the leader, and stops the next one for a while, as clients go on.
async fn trouble(cluster: &mut Cluster, load: &Load) {
    let leader = cluster.wait_for_leader(secs(20)).await;
    cluster.signal(leader, Signal::Kill);
    load.progress(10, secs(20)).await;
    cluster.spawn(leader);
    load.progress(10, secs(20)).await;

    let leader = cluster.wait_for_leader(secs(20)).await;
    cluster.signal(leader, Signal::Stop);
    sleep(STOPPED).await;
    cluster.signal(leader, Signal::Continue);
    load.progress(10, secs(20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_rolled_halfway_and_back_and_up_while_its_nodes_fail() {
    let mut cluster = Cluster::start(Options {
        server: Some(older()),
        ..Options::alone()
    })
    .await;
    let load = Load::start(&cluster, SHAPE).await;
    let caller = cluster.caller();
    let moving = Moving::start(cluster.caller()).await;
    let number = moving.session.number();
    let held = caller.acquire(&moving.session, number, "held/moving", None);
    let held = held.await.unwrap().token;

    // A majority is newer, and may lead; one node that is not keeps the level down.
    for at in 0..2 {
        restart_as(&mut cluster, at, None).await;
        load.progress(10, secs(20)).await;
        trouble(&mut cluster, &load).await;
    }
    for at in (0..2).rev() {
        assert!(cluster.level(at).await < LEVEL_ACCESS, "no level too early");
        restart_as(&mut cluster, at, Some(older())).await;
        load.progress(10, secs(20)).await;
        trouble(&mut cluster, &load).await;
    }
    for at in 0..cluster.len() {
        restart_as(&mut cluster, at, None).await;
        trouble(&mut cluster, &load).await;
    }
    wait_for_level(&cluster, LEVEL_ACCESS).await;
    trouble(&mut cluster, &load).await;

    // Now there is no way back: the older release ends before it could read what it does not know.
    cluster.signal(0, Signal::Terminate);
    assert_eq!(cluster.wait_exit(0, secs(20)).await, Some(0));
    cluster.set_server(0, Some(older()));
    cluster.spawn(0);
    let code = cluster.wait_exit(0, secs(60)).await;
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    cluster.set_server(0, None);
    cluster.spawn(0);
    load.progress(10, secs(20)).await;
    wait_for_level(&cluster, LEVEL_ACCESS).await;

    moving.assert_kept();
    assert_eq!(holder_of(&caller, "held/moving").await, Some(held));
    load.finish().await;
}
