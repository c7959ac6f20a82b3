//! Wall clocks that nobody has set: tokens of a new cluster begin at the clock.

use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_core::Millis;
use ringfence_raft::Role;

use crate::harness::{Cluster, acquired, eventually, holder, open};

/// 2027-01-15.
const LATER_SECONDS: u64 = 1_800_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn forming_waits_for_a_believable_clock_and_goes_on_by_itself() {
    static CLOCK: AtomicU64 = AtomicU64::new(0);
    let mut cluster = Cluster::new(&["n1"]);
    cluster.adjust = |config| {
        config.token_floor = None;
        config.hooks.wall_millis = || CLOCK.load(Ordering::Relaxed) * 1_000;
    };
    let node = cluster.start("n1").await;
    eventually("a leader without a cluster", || {
        let status = node.status();
        status.role == Role::Leader && !status.serving && status.applied_index > 0
    })
    .await;
    let term = node.status().term;

    CLOCK.store(LATER_SECONDS, Ordering::Relaxed);
    cluster.serving("n1").await;
    assert_eq!(node.status().term, term, "no election was needed");
    let session = open(&node, 1, Millis::from_secs(60)).await;
    let token = acquired(&node, session, 1, "lease").await;
    assert!(token > LATER_SECONDS << 20, "{token}");

    // A cluster that is formed does not depend on the clock any more.
    cluster.crash("n1").await;
    CLOCK.store(0, Ordering::Relaxed);
    let node = cluster.start("n1").await;
    cluster.serving("n1").await;
    assert_eq!(holder(&node, "lease"), Some((session.id, token)));
    assert!(acquired(&node, session, 2, "another").await > token);
}
