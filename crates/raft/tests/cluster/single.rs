//! One node alone.

use ringfence_core::Millis;

use crate::harness::{Cluster, acquired, holder, open};

#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_forms_a_cluster_and_keeps_everything_over_restarts() {
    let mut cluster = Cluster::formed(&["n1"]).await;
    let node = cluster.nodes["n1"].clone();
    let session = open(&node, 1, Millis::from_secs(30)).await;
    let token = acquired(&node, session, 1, "a/lease").await;
    let before = node.status();

    cluster.crash("n1").await;
    let node = cluster.start("n1").await;
    cluster.serving("n1").await;
    let after = node.status();
    assert_eq!(
        (after.cluster, after.node_id),
        (before.cluster, before.node_id)
    );
    assert!(
        after.term > before.term,
        "a restarted node never resumes a term"
    );
    assert_eq!(holder(&node, "a/lease"), Some((session.id, token)));

    node.shutdown().await;
    let node = cluster.start("n1").await;
    cluster.serving("n1").await;
    let other = open(&node, 2, Millis::from_secs(30)).await;
    assert!(acquired(&node, other, 1, "another").await > token);
}
