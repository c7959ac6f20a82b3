//! A leader that has lost its majority, and may not have noticed yet.

use std::time::Duration;

use ringfence_core::Millis;
use ringfence_raft::KeepAlive;
use tokio::time::timeout;

use crate::harness::{Cluster, open};

/// Long enough for an answer that needs no other node.
const AT_ONCE: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_a_majority_acknowledges_no_keep_alive_and_answers_no_read() {
    let mut cluster = Cluster::formed(&["n1", "n2", "n3"]).await;
    let leader = cluster.leader().await;
    let node = cluster.nodes[&leader].clone();
    let session = open(&node, 1, Millis::from_secs(60)).await;
    let others: Vec<String> = cluster.nodes.keys().cloned().collect();
    for name in others.iter().filter(|name| **name != leader) {
        cluster.crash(name).await;
    }

    // Another could lead by now, have ended the session, and have granted its leases.
    let keep_alive = KeepAlive {
        sessions: vec![(session.id, session.secret)],
        ..KeepAlive::default()
    };
    let (kept, read) = tokio::join!(
        timeout(AT_ONCE, node.keep_alive(keep_alive)),
        timeout(AT_ONCE, node.read_barrier()),
    );
    assert!(!matches!(kept, Ok(Ok(_))), "acknowledged: {kept:?}");
    assert!(!matches!(read, Ok(Ok(()))), "answered: {read:?}");
}
