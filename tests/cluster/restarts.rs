//! Processes that are killed and stopped under load.

use std::time::Duration;

use ringfence_tests::{Cluster, Journal, Load, Options, Shape, Signal};
use tokio::time::sleep;

const SHAPE: Shape = Shape {
    callers: 6,
    leases: 3,
    ttl: Duration::from_secs(10),
    patience: Duration::from_secs(15),
};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_is_killed_again_and_again_under_load() {
    let mut cluster = Cluster::start(Options::default()).await;
    let load = Load::start(&cluster, SHAPE).await;
    let end = Journal::now() + secs(60);
    let mut kills = 0;
    while Journal::now() < end {
        load.progress(5, secs(15)).await;
        let leader = cluster.wait_for_leader(secs(10)).await;
        cluster.signal(leader, Signal::Kill);
        kills += 1;
        load.progress(5, secs(15)).await;
        cluster.spawn(leader);
        sleep(secs(1)).await;
    }
    let journal = load.finish().await;
    println!("{kills} leaders killed, {} grants", journal.len());
    assert!(kills >= 10, "only {kills} kills in 60 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_is_overtaken_and_rejoins() {
    let mut cluster = Cluster::start(Options::default()).await;
    let load = Load::start(&cluster, SHAPE).await;
    load.progress(20, secs(15)).await;
    let leader = cluster.wait_for_leader(secs(10)).await;
    cluster.signal(leader, Signal::Stop);
    load.progress(20, secs(15)).await;
    sleep(secs(5)).await;
    cluster.signal(leader, Signal::Continue);
    load.progress(20, secs(15)).await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_are_killed_and_started_again() {
    let mut cluster = Cluster::start(Options::default()).await;
    let load = Load::start(&cluster, SHAPE).await;
    for _ in 0..3 {
        load.progress(20, secs(20)).await;
        for at in 0..cluster.len() {
            cluster.signal(at, Signal::Kill);
        }
        for at in 0..cluster.len() {
            cluster.spawn(at);
        }
    }
    load.progress(20, secs(20)).await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_told_to_stop_hands_over_and_ends_in_five_seconds() {
    let mut cluster = Cluster::start(Options::alone()).await;
    let load = Load::start(&cluster, SHAPE).await;
    let mut handed_over = false;
    // It does not insist, so that it ends in time on a machine that has none for it: then another is
    // elected. Not three times in a row.
    for _ in 0..3 {
        load.progress(20, secs(15)).await;
        let leader = cluster.wait_for_leader(secs(10)).await;
        cluster.signal(leader, Signal::Terminate);
        let code = cluster.wait_exit(leader, secs(5)).await;
        let log = cluster.log(leader);
        assert_eq!(code, Some(0), "n{} ends by itself:\n{log}", leader + 1);
        handed_over = log.contains("leadership is handed over");
        if handed_over {
            break;
        }
        cluster.spawn(leader);
    }
    assert!(handed_over, "no leader that was told to stop handed over");
    load.progress(20, secs(10)).await;
    load.finish().await;
}
