//! What a node that has just started knows of the age of its state.

use ringfence_core::Millis;

use crate::harness::{Cluster, eventually, open};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_alone_has_not_caught_up_and_does_with_the_others() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.leader().await;
    let late = cluster.a_first_follower().await;
    cluster.crash(&late).await;
    let node = cluster.nodes[&leader].clone();
    let session = open(&node, 1, Millis::from_secs(300)).await;
    eventually("a leader that has applied its term", || {
        node.has_caught_up()
    })
    .await;
    for name in NAMES.iter().filter(|name| **name != late) {
        cluster.crash(name).await;
    }

    let node = cluster.start(&late).await;
    assert!(node.read(|machine| machine.session(session.id).is_none()));
    assert!(!node.has_caught_up(), "it may be far behind, and is");

    for name in NAMES.iter().filter(|name| **name != late) {
        cluster.start(name).await;
    }
    eventually("a state that is the newest", || node.has_caught_up()).await;
    assert!(node.read(|machine| machine.session(session.id).is_some()));
}
