//! Two processes with one identity.

use std::net::{Ipv4Addr, SocketAddr};

use ringfence_core::Millis;
use ringfence_raft::{Node, NodeConfig, StopReason};

use crate::harness::{Cluster, eventually, holder, open, propose, weighty, within};
use crate::storage::copy_files;

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// A node with a copy of a follower's directory, on a port of its own; the follower is down.
async fn copied(cluster: &mut Cluster) -> (String, NodeConfig, tempfile::TempDir) {
    let name = cluster.a_follower().await;
    cluster.crash(&name).await;
    let copy = tempfile::tempdir().unwrap();
    copy_files(&cluster.data_dir(&name), copy.path());
    let config = NodeConfig {
        data_dir: copy.path().to_owned(),
        peer_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        ..cluster.config(&name)
    };
    (name, config, copy)
}

fn is_twin(reason: &StopReason, address: &str) {
    assert!(
        matches!(reason, StopReason::Twin { address: at } if at == address),
        "{reason:?}"
    );
    let said = reason.to_string();
    assert!(said.contains("joins under a new id"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_started_beside_the_original_stops() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let (name, config, _copy) = copied(&mut cluster).await;
    let original = cluster.start(&name).await;
    cluster.serving(&name).await;
    let address = cluster.config(&name).peer_listen.to_string();

    let copy = Node::start(config).await.unwrap();
    let reason = within("the end of the copy", copy.stopped()).await;
    is_twin(&reason, &address);
    copy.shutdown().await;

    let leader = cluster.nodes[&cluster.leader().await].clone();
    let session = open(&leader, 1, Millis::from_secs(60)).await;
    propose(&leader, weighty(session, 1)).await;
    eventually("the entry at the original", || {
        holder(&original, "lease/1").is_some()
    })
    .await;
}

/// Nothing tells it from the original before that is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_ran_alone_stops_when_the_original_is_back() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let (name, config, _copy) = copied(&mut cluster).await;
    let copy = Node::start(config).await.unwrap();
    let address = cluster.config(&name).peer_listen.to_string();
    let original = cluster.start(&name).await;
    let reason = within("the end of the copy", copy.stopped()).await;
    is_twin(&reason, &address);
    copy.shutdown().await;
    cluster.serving(&name).await;
    assert!(original.status().serving);
}
