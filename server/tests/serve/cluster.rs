//! Three nodes.

use std::time::Duration;

use ringfence_proto::v1;
use ringfence_proto::v1::access_client::AccessClient;
use ringfence_proto::v1::check_response::Verdict;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::api::{Api, acquire_request, refusal};
use crate::process::{PATIENCE, Ports, Process};

/// Three nodes that are ready.
pub(crate) async fn three() -> (Vec<Process>, TempDir) {
    three_with([&[]; 3]).await
}

/// The same, each with more flags of its own.
pub(crate) async fn three_with(more: [&[&str]; 3]) -> (Vec<Process>, TempDir) {
    let dir = TempDir::new().unwrap();
    let ports = [0; 3].map(|_| Ports::free());
    let members: Vec<_> = (1..)
        .zip(&ports)
        .map(|(n, ports)| format!("n{n}=127.0.0.1:{}", ports.peer))
        .collect();
    let members = format!("--initial-cluster={}", members.join(","));
    let mut nodes = Vec::new();
    for ((n, ports), more) in (1..).zip(ports).zip(more) {
        let name = format!("n{n}");
        let flags = ["--name", &name, &members, "--token-floor=0"];
        let flags = [&flags[..], more].concat();
        nodes.push(Process::start(&dir.path().join(&name), ports, &flags));
    }
    let mut ready = Vec::new();
    for node in nodes {
        ready.push(node.ready().await);
    }
    (ready, dir)
}

#[tokio::test]
async fn the_founders_mode_counts_whatever_other_first_members_were_given() {
    let enforced: &[&str] = &["--access", "enforced"];
    let mode = async |node: &Process| {
        let mut access = AccessClient::connect(node.url()).await.unwrap();
        let answer = access.who_am_i(v1::WhoAmIRequest {}).await;
        answer.unwrap().into_inner().mode()
    };
    let (nodes, _dir) = three_with([&[], enforced, enforced]).await;
    // Longer than a node needs to see that it could set a mode.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for node in &nodes {
        assert_eq!(mode(node).await, v1::AccessMode::Off);
    }
    drop(nodes);
    let (nodes, _dir) = three_with([enforced, &[], &[]]).await;
    for node in &nodes {
        assert_eq!(mode(node).await, v1::AccessMode::Enforced);
    }
}

#[tokio::test]
async fn every_node_answers_every_call_and_a_stopped_leader_leaves_no_gap() {
    let (mut nodes, _dir) = three().await;
    let mut apis = Vec::new();
    for node in &nodes {
        apis.push(Api::of(node).await);
    }

    let alice = apis[0].open("alice").await;
    let mut tokens = Vec::new();
    for (number, api) in (1..).zip(&mut apis) {
        let grant = api
            .acquire(&alice, number, &format!("lease/{number}"))
            .await
            .unwrap();
        tokens.push(grant.token);
    }
    assert_eq!(tokens, [1, 2, 3]);
    for api in &mut apis {
        assert_eq!(api.check("lease/1", 1).await.verdict(), Verdict::Current);
    }

    let leader = apis[0].status().await.leader_id;
    let at = nodes
        .iter()
        .position(|node| node.ports.client == port_of(leader, &nodes))
        .unwrap();
    let mut stopped = nodes.remove(at);
    apis.remove(at);
    stopped.signal("TERM");
    // The very next request is served.
    let request = v1::AcquireRequest {
        wait_ms: Some(0),
        ..acquire_request(&alice, 4, "after")
    };
    let served = async {
        loop {
            let mut request = tonic::Request::new(request.clone());
            request.set_timeout(Duration::from_secs(2));
            if let Ok(answer) = apis[0].leases.acquire(request).await {
                return answer.into_inner().grant.unwrap().token;
            }
        }
    };
    assert_eq!(timeout(PATIENCE, served).await.unwrap(), 4);
    let ended = stopped
        .ended_within(Duration::from_secs(5))
        .await
        .expect("it ends in time");
    assert!(ended.success(), "{ended}: {}", stopped.logged());
}

/// The client port of the node with this id: ids of first members follow their names.
pub(crate) fn port_of(id: u64, nodes: &[Process]) -> u16 {
    nodes[usize::try_from(id).unwrap() - 1].ports.client
}

#[tokio::test]
async fn who_waits_at_a_follower_is_told_by_it() {
    let (nodes, _dir) = three().await;
    let mut apis = Vec::new();
    for node in &nodes {
        apis.push(Api::of(node).await);
    }
    let leader = usize::try_from(apis[0].status().await.leader_id).unwrap() - 1;
    let follower = (leader + 1) % 3;
    let alice = apis[leader].open("alice").await;
    let grant = apis[leader].acquire(&alice, 1, "db").await.unwrap();

    let mut leases = apis[follower].leases.clone();
    let waiting = v1::AcquireRequest {
        open: Some(crate::api::open_request("bob")),
        name: "db".to_owned(),
        wait_ms: Some(10_000),
        ..Default::default()
    };
    let waiting = tokio::spawn(async move { leases.acquire(waiting).await });
    while apis[leader].get("db").await.unwrap().waiters == 0 {}
    apis[leader].release(&alice, 2, &grant).await.unwrap();

    let answer = timeout(PATIENCE, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .into_inner();
    assert_eq!(answer.grant.unwrap().identity, "bob");
    let members = apis[follower]
        .cluster
        .list_members(v1::ListMembersRequest {})
        .await
        .unwrap();
    assert_eq!(members.into_inner().members.len(), 3);
}

#[tokio::test]
async fn a_follower_that_stops_names_the_leader_to_those_who_watch() {
    let (nodes, _dir) = three().await;
    let mut api = Api::of(&nodes[0]).await;
    let leader = api.status().await.leader_id;
    let follower = nodes
        .iter()
        .find(|node| node.ports.client != port_of(leader, &nodes))
        .unwrap();
    let mut leases = Api::of(follower).await.leases;
    let request = v1::WatchRequest::default();
    let mut watch = leases.watch(request).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();

    follower.signal("TERM");

    let ended = loop {
        match timeout(PATIENCE, watch.message()).await.unwrap() {
            Ok(Some(_)) => {}
            end => break end.unwrap_err(),
        }
    };
    let refusal = refusal(&ended);
    assert_eq!(refusal.reason, v1::Reason::Unavailable);
    let named = &refusal.metadata["leader"];
    let port = port_of(leader, &nodes);
    assert!(named.ends_with(&format!(":{port}")), "{refusal:?}");
}
