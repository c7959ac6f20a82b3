//! How a node that comes later gets its vote, and how one that has lost its data does not.

use std::time::Duration;

use ringfence_proto::v1;
use tokio::time::{sleep, timeout};

use crate::api::Api;
use crate::cluster::three;
use crate::process::{PATIENCE, Ports, Process};

/// How often what cannot be awaited is looked at.
const GLANCE: Duration = Duration::from_millis(20);

fn peers(nodes: &[Process]) -> Vec<String> {
    let ports = nodes.iter().map(|node| node.ports.peer);
    ports.map(|port| format!("127.0.0.1:{port}")).collect()
}

#[tokio::test]
async fn a_node_that_joins_as_a_voter_has_its_vote_once_it_is_ready() {
    let (nodes, dir) = three().await;
    let join = format!("--join={}", peers(&nodes).join(","));
    let flags = ["--name=n4", &join, "--join-as-voter"];
    let fourth = Process::start(&dir.path().join("n4"), Ports::free(), &flags);
    let fourth = fourth.ready().await;

    let members = Api::of(&fourth).await.members().await;
    let votes: Vec<_> = members
        .iter()
        .map(|member| (member.name.as_str(), member.voter))
        .collect();
    assert_eq!(
        votes,
        [("n1", true), ("n2", true), ("n3", true), ("n4", true)]
    );
}

#[tokio::test]
async fn a_node_that_lost_its_data_takes_no_vote_unasked_and_says_what_to_do() {
    let (mut nodes, dir) = three().await;
    let peers = peers(&nodes);
    let named = (1..)
        .zip(&peers)
        .map(|(number, peer)| format!("n{number}={peer}"));
    let members = format!("--initial-cluster={}", named.collect::<Vec<_>>().join(","));
    let join = format!("--join={}", peers.join(","));
    let lost = nodes.pop().unwrap();
    let ports = lost.ports;
    drop(lost);

    let flags = ["--name=n3", &members, &join, "--join-as-voter"];
    let third = Process::start(&dir.path().join("n3-again"), ports, &flags);
    let told = async {
        loop {
            match third.http("/readyz") {
                Some((503, why)) if why.contains("--replaces") => return why,
                Some((200, why)) => panic!("it is ready: {why}"),
                _ => sleep(GLANCE).await,
            }
        }
    };
    let why = timeout(PATIENCE, told).await.unwrap();
    let mut api = Api::of(&nodes[0]).await;
    let found = api.members().await;
    let of_its_name = found.iter().filter(|member| member.name == "n3");
    let (former, own): (Vec<_>, Vec<_>) = of_its_name.partition(|member| member.voter);
    let (former, own) = (former[0].node_id, own[0].node_id);
    let command = format!("`ringfence cluster promote {own} --replaces {former}`");
    assert!(why.contains(&command), "{why}");
    assert_eq!(third.http("/livez").unwrap().0, 200);

    let request = v1::PromoteMemberRequest {
        node_id: own,
        replaces: former,
    };
    api.cluster.promote_member(request).await.unwrap();
    let third = third.ready().await;
    let found = Api::of(&third).await.members().await;
    let ids: Vec<u64> = found.iter().map(|member| member.node_id).collect();
    assert_eq!(ids, [1, 2, own]);
}
