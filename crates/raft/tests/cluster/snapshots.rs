//! Snapshots: taken, installed, and what must survive that.

use ringfence_core::{Acquired, Ask, FencingToken, Millis, Outcome};
use ringfence_raft::{HistoryQuery, WaitDone};

use crate::harness::{
    Cluster, acquire, acquired, eventually, holder, name, number, open, propose, remove, request,
    within,
};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// A cluster that takes snapshots all the time and keeps hardly any log behind them.
fn eager() -> Cluster {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| {
        config.snapshot_log_bytes = 4_096;
        config.snapshot_log_keep = 1;
    };
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_restarts_from_its_snapshot() {
    let mut cluster = Cluster::new(&["n1"]);
    cluster.adjust = |config| {
        config.snapshot_log_bytes = 4_096;
        config.snapshot_log_keep = 1;
    };
    cluster.start_all().await;
    let node = cluster.nodes["n1"].clone();
    let session = open(&node, 1, Millis::from_secs(60)).await;
    let mut tokens = Vec::new();
    for n in 1..=100 {
        tokens.push(acquired(&node, session, n, &format!("lease/{n}")).await);
    }
    eventually("a purged log", || node.metrics().purged_index > 50).await;
    cluster.crash("n1").await;
    let node = cluster.start("n1").await;
    cluster.serving("n1").await;
    for (n, token) in (1..).zip(tokens) {
        assert_eq!(
            holder(&node, &format!("lease/{n}")),
            Some((session.id, token))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_learner_that_installs_a_snapshot_loses_no_waiter_and_no_history() {
    let mut cluster = eager();
    cluster.start_all().await;
    let leader = cluster.leader().await;
    let follower = cluster.a_follower().await;
    let node = cluster.nodes[&leader].clone();
    let holding = open(&node, 1, Millis::from_secs(60)).await;
    let waiting = open(&node, 2, Millis::from_secs(60)).await;
    let token = acquired(&node, holding, 1, "wanted").await;
    let wait = acquire(waiting, 1, "wanted", Some(Millis::from_secs(60)));
    let answer = propose(&node, wait).await;
    assert!(
        matches!(answer, Outcome::Acquired(Acquired::Waiting { .. })),
        "{answer:?}"
    );

    // Its successor is another member, with an id of its own.
    let away = cluster.nodes[&follower].status().node_id.unwrap();
    cluster.crash(&follower).await;
    std::fs::remove_dir_all(cluster.data_dir(&follower)).unwrap();
    remove(&node, away).await;
    let token = FencingToken::new(token).unwrap();
    for n in 2..=100 {
        acquired(&node, holding, n, &format!("lease/{n}")).await;
    }
    let release = Ask::Release {
        name: name("wanted"),
        token,
        close: false,
    };
    propose(&node, request(holding, 101, release)).await;
    for n in 102..=200 {
        acquired(&node, holding, n, &format!("lease/{n}")).await;
    }
    eventually("a purged log", || node.metrics().purged_index > 150).await;

    let back = cluster.start(&follower).await;
    // Registered while the node knows nothing yet.
    let waiter = back.waiter(waiting.id, number(1));
    match within("the end of the wait", waiter).await {
        WaitDone::Settled(Acquired::Granted(granted)) => assert!(granted.token > token),
        other => panic!("{other:?}"),
    }
    assert!(back.metrics().snapshots_installed >= 1);
    within("the missing stretch of history", async {
        loop {
            let answer = back.history(HistoryQuery::Token(token)).await.unwrap();
            let whole = answer
                .records
                .iter()
                .any(|r| r.granted.is_some() && r.ended.is_some());
            if whole && answer.covered.len() == 1 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}
