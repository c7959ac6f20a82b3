//! How a node that comes later gets its vote, and how one that has lost its data does not.

use std::time::Duration;

use ringfence_proto::v1::{self, Reason};
use tokio::time::{sleep, timeout};

use crate::api::{Api, refusal};
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
        force: false,
    };
    api.cluster.promote_member(request).await.unwrap();
    let third = third.ready().await;
    let found = Api::of(&third).await.members().await;
    let ids: Vec<u64> = found.iter().map(|member| member.node_id).collect();
    assert_eq!(ids, [1, 2, own]);
}

#[tokio::test]
async fn a_node_alone_is_ready_and_stays_it() {
    let dir = tempfile::TempDir::new().unwrap();
    let ports = Ports::free();
    let members = format!("--initial-cluster=n1=127.0.0.1:{}", ports.peer);
    let flags = ["--name=n1", &members, "--token-floor=0"];
    let node = Process::start(dir.path(), ports, &flags).ready().await;
    // Longer than a state may be unconfirmed for a node to be ready.
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(node.http("/readyz").map(|(status, _)| status), Some(200));
    let mut api = Api::of(&node).await;
    let request = v1::CheckRequest {
        name: "db".to_owned(),
        token: 1,
        read: Some(v1::ReadOptions {
            max_staleness_ms: 1_000,
        }),
    };
    let checked = api.leases.check(request).await.unwrap().into_inner();
    assert!(checked.at.is_some(), "a read of bounded age: {checked:?}");
}

#[tokio::test]
async fn removing_a_live_voter_beside_a_dead_one_is_refused_and_can_be_forced() {
    let (mut nodes, _dir) = three().await;
    let mut api = Api::of(&nodes[0]).await;
    let leader = api.status().await.leader_id;
    let mut ids: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let dead = ids.pop().unwrap();
    drop(nodes.remove(usize::try_from(dead).unwrap() - 1));
    let mut api = Api::of(&nodes[0]).await;
    let mut request = v1::RemoveMemberRequest {
        node_id: ids[0],
        force: false,
    };
    let refused = timeout(PATIENCE, async {
        loop {
            let refused = api.cluster.remove_member(request).await.unwrap_err();
            if refusal(&refused).reason == Reason::Membership {
                return refused;
            }
        }
    });
    let refused = refused.await.unwrap();
    assert!(refused.message().contains("--force"), "{refused}");

    // With force the cluster is left with the leader and the dead one, and stands still.
    request.force = true;
    let forced = timeout(Duration::from_secs(4), api.cluster.remove_member(request));
    assert!(
        !matches!(forced.await, Ok(Ok(_))),
        "there is no majority for it"
    );
}
