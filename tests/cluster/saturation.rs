//! Every core busy, and a follower that sleeps while the log is sent to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_proto::v1::StatusRequest;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_tests::{Cluster, Load, Options, Shape, Signal};

const PATIENCE: Duration = Duration::from_secs(30);
const SHAPE: Shape = Shape {
    callers: 48,
    leases: 24,
    ttl: Duration::from_secs(20),
    patience: PATIENCE,
};
/// How long the cores are kept busy.
const BUSY: Duration = Duration::from_secs(10);

/// Two threads a core that do nothing else than turn round, until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start() -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..2 * cores {
            let done = Arc::clone(&done);
            std::thread::spawn(move || while !done.load(Ordering::Relaxed) {});
        }
        Self(done)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn status(cluster: &Cluster, at: usize) -> Option<(u64, u64)> {
    let mut client = ClusterClient::new(cluster.caller().channel(at));
    let asked = tokio::time::timeout(PATIENCE, client.status(StatusRequest {}));
    let status = asked.await.ok()?.ok()?.into_inner();
    Some((status.term, status.applied_index))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saturated_cluster_elects_nobody_anew() {
    let cluster = Cluster::start(Options::alone()).await;
    let leader = cluster.wait_for_leader(PATIENCE).await;
    let (before, _) = status(&cluster, leader).await.unwrap();
    let load = Load::start(&cluster, SHAPE).await;
    let busy = Busy::start();
    tokio::time::sleep(BUSY).await;
    let (after, _) = status(&cluster, leader).await.unwrap();
    drop(busy);
    load.progress(20, PATIENCE).await;
    load.finish().await;
    assert_eq!(after, before, "an election although everybody is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_sleeps_while_the_log_is_sent_to_it_catches_up() {
    let mut cluster = Cluster::start(Options::alone()).await;
    let load = Load::start(&cluster, SHAPE).await;
    let leader = cluster.wait_for_leader(PATIENCE).await;
    let sleeper = (leader + 1) % cluster.len();
    // So long that its connections are given up, then so short that no peer misses it.
    for asleep in [Duration::from_secs(6), Duration::from_millis(300)] {
        load.progress(20, PATIENCE).await;
        cluster.signal(sleeper, Signal::Stop);
        tokio::time::sleep(asleep).await;
        load.progress(20, PATIENCE).await;
        cluster.signal(sleeper, Signal::Continue);
    }
    let leader = cluster.wait_for_leader(PATIENCE).await;
    let (_, goal) = status(&cluster, leader).await.unwrap();
    let caught_up = tokio::time::timeout(PATIENCE, async {
        while status(&cluster, sleeper)
            .await
            .is_none_or(|(_, applied)| applied < goal)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(caught_up.await.is_ok(), "it stays behind {goal}");
    // It is needed for a majority from now on.
    let third = (0..cluster.len()).find(|at| *at != sleeper && *at != leader);
    cluster.signal(third.unwrap(), Signal::Kill);
    load.progress(20, PATIENCE).await;
    load.finish().await;
}
