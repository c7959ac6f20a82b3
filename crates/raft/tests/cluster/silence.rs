//! A node without a majority says so when it is first asked.

use std::time::Duration;

use ringfence_core::Millis;
use ringfence_raft::Silence;

use crate::harness::{Cluster, eventually, open, propose, weighty};

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
                assert_eq!(node.silence(WITHIN), alone, "{name}");
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
    eventually("a majority", || follower_node.age().is_some()).await;
    assert_eq!(follower_node.silence(WITHIN), None, "all five run");
    let names: Vec<String> = cluster.nodes.keys().cloned().collect();
    for name in names {
        if name != leader && name != follower {
            cluster.crash(&name).await;
        }
    }
    tokio::time::sleep(3 * WITHIN).await;
    for node in [&follower_node, &cluster.nodes[&leader]] {
        let silence = node.silence(WITHIN);
        let since = silence.and_then(|silence| silence.since);
        assert!(since > Some(WITHIN), "{silence:?}");
    }
}

/// A leader goes, and another one stands before its term: neither has been without a majority for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_leader_is_no_silence() {
    let cluster = Cluster::formed(&["n1", "n2", "n3"]).await;
    eventually("all know a majority", || {
        let mut nodes = cluster.nodes.values();
        nodes.all(|node| node.silence(WITHIN).is_none())
    })
    .await;
    for _ in 0..3 {
        let leader = cluster.nodes[&cluster.leader().await].clone();
        let handed = async { leader.transfer_leader(None, None).await.unwrap() };
        let watched = async {
            for _ in 0..100 {
                for (name, node) in &cluster.nodes {
                    assert_eq!(node.silence(WITHIN), None, "{name}");
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::join!(handed, watched);
    }
}

/// What listens where the leader was counts who knocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_gone_is_asked_rarely() {
    let mut cluster = Cluster::formed(&["n1", "n2", "n3"]).await;
    // Of two, the one that does not lead never will once it is alone.
    cluster.crash(&cluster.a_follower().await).await;
    let leader = cluster.leader().await;
    let address = cluster.nodes[&leader].peer_address();
    cluster.crash(&leader).await;
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let mut knocks = 0;
    let counted = async {
        loop {
            listener.accept().await.unwrap();
            knocks += 1;
        }
    };
    let lasts = Duration::from_secs(4);
    assert!(tokio::time::timeout(lasts, counted).await.is_err());
    assert!(knocks <= 20 * lasts.as_secs(), "{knocks} in {lasts:?}");
}

/// Its disk is full, and its leader has a majority without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_is_behind_has_heard_of_a_majority() {
    let mut cluster = Cluster::new(&["n1", "n2", "n3"]);
    cluster.adjust = |config| config.wal_segment_bytes = ringfence_raft::WAL_SEGMENT_BYTES_MIN;
    cluster.with_disks();
    cluster.start_all().await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let name = cluster.a_follower().await;
    let follower = cluster.nodes[&name].clone();
    let session = open(&leader, 1, Millis::from_secs(300)).await;
    eventually("all is applied", || follower.age().is_some()).await;

    cluster.disks[&name].fill("wal", true);
    cluster.disks[&name].fill("snapshots", true);
    let mut numbers = 1..;
    while !follower.metrics().wal_no_room {
        propose(&leader, weighty(session, numbers.next().unwrap())).await;
    }
    let mut shown = Vec::new();
    for n in numbers.take(12) {
        propose(&leader, weighty(session, n)).await;
        tokio::time::sleep(WITHIN / 4).await;
        shown.push(follower.silence(WITHIN));
    }
    let behind = follower.age();
    assert!(behind > Some(WITHIN), "{behind:?}: it takes no entries");
    assert!(shown.iter().all(Option::is_none), "{shown:?}");
}
