//! Three nodes.

use ringfence_core::{Millis, Rejection, Secret};
use ringfence_raft::{KeepAlive, Known, Role};

use crate::harness::{Cluster, acquired, eventually, holder, open};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_form_one_cluster_and_every_node_takes_commands() {
    let cluster = Cluster::formed(&NAMES).await;
    let ids: Vec<_> = cluster
        .nodes
        .values()
        .map(|node| node.status().node_id.unwrap())
        .collect();
    assert_eq!(ids, [1, 2, 3]);
    let first = cluster.nodes["n1"].status().cluster;
    assert!(
        cluster
            .nodes
            .values()
            .all(|node| node.status().cluster == first)
    );

    let mut last = 0;
    for (n, node) in (1..).zip(cluster.nodes.values()) {
        let session = open(node, n, Millis::from_secs(30)).await;
        let token = acquired(node, session, 1, &format!("lease/{n}")).await;
        assert!(token > last, "tokens grow over all leases");
        last = token;
        for reader in cluster.nodes.values() {
            reader.read_barrier().await.unwrap();
            assert_eq!(
                holder(reader, &format!("lease/{n}")),
                Some((session.id, token))
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_alives_are_acknowledged_on_every_node_and_only_for_the_right_secret() {
    let cluster = Cluster::formed(&NAMES).await;
    let node = &cluster.nodes[&cluster.leader().await];
    let session = open(node, 1, Millis::from_secs(5)).await;
    for node in cluster.nodes.values() {
        let sessions = vec![(session.id, session.secret)];
        let kept = node
            .keep_alive(KeepAlive {
                sessions,
                ..KeepAlive::default()
            })
            .await
            .unwrap();
        assert_eq!(kept.ended, []);
        let sessions = vec![(session.id, Secret::new([9; 16]))];
        let kept = node
            .keep_alive(KeepAlive {
                sessions,
                ..KeepAlive::default()
            })
            .await
            .unwrap();
        assert_eq!(kept.ended, [(session.id, Rejection::WrongSecret)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_session_ends_and_a_kept_one_does_not() {
    let cluster = Cluster::formed(&NAMES).await;
    let node = cluster.nodes["n2"].clone();
    let silent = open(&node, 1, Millis(400)).await;
    let kept = open(&node, 2, Millis(400)).await;
    acquired(&node, silent, 1, "silent").await;
    acquired(&node, kept, 1, "kept").await;
    let keeper = tokio::spawn(async move {
        loop {
            let sessions = vec![(kept.id, kept.secret)];
            let answer = node
                .keep_alive(KeepAlive {
                    sessions,
                    ..KeepAlive::default()
                })
                .await;
            if let Ok(answer) = answer {
                assert_eq!(answer.ended, []);
            }
            tokio::time::sleep(std::time::Duration::from_millis(80)).await;
        }
    });
    let node = &cluster.nodes["n1"];
    eventually("the end of the silent session", || {
        holder(node, "silent").is_none()
    })
    .await;
    assert!(holder(node, "kept").is_some(), "the kept session lives");
    assert!(!keeper.is_finished());
    keeper.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_shuts_down_hands_over_and_the_others_go_on() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.leader().await;
    let session = open(&cluster.nodes[&leader], 1, Millis::from_secs(30)).await;
    let token = acquired(&cluster.nodes[&leader], session, 1, "before").await;
    let node = cluster.nodes.remove(&leader).unwrap();
    node.shutdown().await;
    let next = cluster.leader().await;
    assert_ne!(next, leader);
    let node = &cluster.nodes[&next];
    assert_eq!(holder(node, "before"), Some((session.id, token)));
    assert!(acquired(node, session, 2, "after").await > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_all_nodes_crash_at_once() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let node = cluster.nodes["n1"].clone();
    let session = open(&node, 1, Millis::from_secs(60)).await;
    let mut tokens = Vec::new();
    for n in 1..=50 {
        tokens.push(acquired(&node, session, n, &format!("lease/{n}")).await);
    }
    for name in NAMES {
        cluster.crash(name).await;
    }
    cluster.start_all().await;
    let node = &cluster.nodes["n3"];
    node.read_barrier().await.unwrap();
    for (n, token) in (1..).zip(tokens) {
        assert_eq!(
            holder(node, &format!("lease/{n}")),
            Some((session.id, token))
        );
    }
    let roles = cluster.nodes.values().map(|node| node.status().role);
    assert_eq!(roles.filter(|role| *role == Role::Leader).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_go_on_after_the_leader_crashed_and_it_catches_up() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.leader().await;
    let session = open(&cluster.nodes[&leader], 1, Millis::from_secs(60)).await;
    cluster.crash(&leader).await;
    let next = cluster.leader().await;
    let token = acquired(&cluster.nodes[&next], session, 1, "meanwhile").await;
    let node = cluster.start(&leader).await;
    eventually("the entry on the restarted node", || {
        holder(&node, "meanwhile") == Some((session.id, token))
    })
    .await;
}

/// A watch that goes on at another node: the leader has shown it what the follower hears of with the next
/// message.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_behind_a_position_catches_up_before_it_judges_it() {
    let cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let follower = cluster.nodes[&cluster.a_follower().await].clone();
    let session = open(&leader, 1, Millis::from_secs(30)).await;
    let mut behind = 0;
    for n in 1..=50 {
        acquired(&leader, session, n, &format!("lease/{n}")).await;
        let at = leader.events().head();
        behind += u32::from(follower.events().head().index < at.index);
        assert_eq!(
            follower.known(at, None).await.unwrap(),
            Known::Yes,
            "{at:?}"
        );
    }
    assert!(behind > 0, "a follower that is never behind shows nothing");
}
