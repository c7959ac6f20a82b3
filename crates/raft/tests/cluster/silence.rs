//! A node without a majority says so when it is first asked.

use std::time::Duration;

use ringfence_raft::Silence;

use crate::harness::Cluster;

/// What was heard so long ago counts.
const WITHIN: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_again_alone_has_had_no_majority_since() {
    let mut cluster = Cluster::formed(&["n1", "n2", "n3"]).await;
    let leader = cluster.leader().await;
    let follower = cluster.a_first_follower().await;
    for name in [leader, follower] {
        cluster.crash_all().await;
        let node = cluster.start(&name).await;
        for _ in 0..400 {
            if node.status().cluster.is_some() {
                let alone = Some(Silence { since: None });
                assert_eq!(node.silence(WITHIN).await, alone, "{name}");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_a_leader_without_a_majority_says_so() {
    let mut cluster = Cluster::formed(&["n1", "n2", "n3", "n4", "n5"]).await;
    let (leader, follower) = (cluster.leader().await, cluster.a_first_follower().await);
    let follower_node = cluster.nodes[&follower].clone();
    assert_eq!(follower_node.silence(WITHIN).await, None, "all five run");
    let names: Vec<String> = cluster.nodes.keys().cloned().collect();
    for name in names {
        if name != leader && name != follower {
            cluster.crash(&name).await;
        }
    }
    tokio::time::sleep(3 * WITHIN).await;
    for node in [&follower_node, &cluster.nodes[&leader]] {
        let silence = node.silence(WITHIN).await;
        let since = silence.and_then(|silence| silence.since);
        assert!(since > Some(WITHIN), "{silence:?}");
    }
}
