//! Calls that are cancelled by the hundred, as clients do after a node's pause.

use std::time::Duration;

use ringfence_proto::raft::HelloRequest;
use ringfence_proto::raft::peers_client::PeersClient;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{GetRequest, ListMembersRequest, StatusRequest};
use ringfence_tests::Signal;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::attackers::connect;
use crate::measure::{PATIENCE, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_cancel_what_a_paused_node_has_not_seen() {
    let mut stage = Stage::set().await;
    let at = (stage.leader + 1) % stage.cluster.len();
    let channel = connect(&stage.cluster.endpoints()[at]).await;
    let get = |channel| async move {
        let mut leases = LeasesClient::new(channel);
        let request = GetRequest {
            name: "nothing".to_owned(),
            ..GetRequest::default()
        };
        leases.get(request).await
    };
    assert_eq!(
        get(channel.clone()).await.unwrap_err().code(),
        tonic::Code::NotFound
    );

    stage.cluster.signal(at, Signal::Stop);
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        calls.spawn(get(channel.clone()));
    }
    sleep(Duration::from_millis(500)).await;
    calls.shutdown().await;
    sleep(Duration::from_millis(500)).await;
    stage.cluster.signal(at, Signal::Continue);

    // On the same connection, which the node has not closed.
    let answered = timeout(PATIENCE, get(channel))
        .await
        .expect("an answer in time");
    assert_eq!(answered.unwrap_err().code(), tonic::Code::NotFound);
}

/// The same at the port for other nodes, which give up on a paused one as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_may_cancel_what_a_paused_node_has_not_seen() {
    let mut stage = Stage::set().await;
    let at = (stage.leader + 1) % stage.cluster.len();
    let client = connect(&stage.cluster.endpoints()[at]).await;
    let mut cluster = ClusterClient::new(client);
    let status = cluster.status(StatusRequest {}).await.unwrap();
    let members = cluster.list_members(ListMembersRequest {}).await.unwrap();
    let (own, members) = (status.into_inner().node_id, members.into_inner().members);
    let paused = members.iter().find(|member| member.node_id == own);
    let channel = connect(&paused.unwrap().peer_address).await;
    let hello = |channel| async move {
        let mut peers = PeersClient::new(channel);
        peers.hello(HelloRequest::default()).await
    };
    hello(channel.clone()).await.unwrap();

    stage.cluster.signal(at, Signal::Stop);
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        calls.spawn(hello(channel.clone()));
    }
    sleep(Duration::from_millis(500)).await;
    calls.shutdown().await;
    sleep(Duration::from_millis(500)).await;
    stage.cluster.signal(at, Signal::Continue);

    // On the same connection, which the node has not closed.
    let answered = timeout(PATIENCE, hello(channel)).await;
    answered.expect("an answer in time").unwrap();
}
