//! A voter that is away for long: the others' logs stay short, and it comes back by a snapshot.

use ringfence_core::{Acquired, Millis, Outcome};
use ringfence_raft::Node;

use crate::harness::{Cluster, Session, eventually, holder, open, propose, weighty};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
/// Small enough for a few hundred entries to pass it many times.
const SNAPSHOT_LOG_BYTES: u64 = 32 << 10;
const SNAPSHOT_LOG_KEEP: u64 = 16;
/// More than a weighty entry takes.
const ENTRY_BYTES_MAX: u64 = 1_500;
/// What may be left of a log: what came since the newest snapshot and while it was taken, and
/// what is kept behind it. Entries are dropped by batches of as many as are kept.
const LIVE_BYTES_MAX: u64 = 2 * SNAPSHOT_LOG_BYTES + 2 * SNAPSHOT_LOG_KEEP * ENTRY_BYTES_MAX;
const ROUNDS: u64 = 2;
/// Entries of one round, twice as much as may be left.
const ROUND: u64 = 250;

/// Acquires leases with data, one after another.
async fn write(node: &Node, session: Session, numbers: std::ops::Range<u64>) {
    for n in numbers {
        match propose(node, weighty(session, n)).await {
            Outcome::Acquired(Acquired::Granted(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_voter_does_not_keep_the_log_growing_and_comes_back_by_a_snapshot() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| {
        config.snapshot_log_bytes = SNAPSHOT_LOG_BYTES;
        config.snapshot_log_keep = SNAPSHOT_LOG_KEEP;
        config.wal_segment_bytes = 64 << 10;
    };
    cluster.start_all().await;
    let leader = cluster.leader().await;
    let away = cluster.a_follower().await;
    let node = cluster.nodes[&leader].clone();
    let session = open(&node, 1, Millis::from_secs(60)).await;
    let before = cluster.nodes[&away].metrics();
    cluster.crash(&away).await;

    for round in 0..ROUNDS {
        let first = 1 + round * ROUND;
        write(&node, session, first..first + ROUND).await;
        for node in cluster.nodes.values() {
            eventually("a short log", || {
                node.metrics().wal_live_bytes < LIVE_BYTES_MAX
            })
            .await;
        }
    }
    let metrics = node.metrics();
    assert!(metrics.wal_bytes > 5 * LIVE_BYTES_MAX, "{metrics:?}");
    assert!(metrics.purged_index > before.last_log_index, "{metrics:?}");

    let back = cluster.start(&away).await;
    let last = format!("lease/{}", ROUNDS * ROUND);
    eventually("the newest lease", || holder(&back, &last).is_some()).await;
    assert!(back.metrics().snapshots_installed >= 1);
    // From here on it follows by the log again.
    let next = ROUNDS * ROUND + 1;
    write(&node, session, next..next + 1).await;
    let newest = format!("lease/{next}");
    eventually("an entry of the log", || holder(&back, &newest).is_some()).await;
}
