//! Entries that a node does not know: kept out of the log, and never passed over (I15).

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ringfence_core::Millis;
use ringfence_raft::{Node, ProposeError, SeatError, StartError, StopReason};

use crate::harness::{Cluster, acquired, holder, open, within};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// A command of kind 99, which no release has.
fn unheard_of() -> Bytes {
    Bytes::from_static(&[0x9a, 0x06, 0x00])
}

/// Proposes it until somebody leads who refuses it.
async fn refused_as_unknown(node: &Node) {
    loop {
        match node.propose_encoded(unheard_of()).await {
            Err(ProposeError::NotDone { why, .. })
                if why.contains("does not know this kind of command") =>
            {
                return;
            }
            Err(ProposeError::NotDone { why, .. }) => {
                assert!(why.contains("leads at present"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_the_leader_does_not_know_is_not_logged() {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| config.timing.leader_wait = std::time::Duration::from_millis(300);
    cluster.start_all().await;
    for node in cluster.nodes.values() {
        within("the refusal", refused_as_unknown(node)).await;
    }
    let session = open(&cluster.nodes["n1"], 1, Millis::from_secs(60)).await;
    for (n, node) in (1..).zip(cluster.nodes.values()) {
        acquired(node, session, n, &format!("lease/{n}")).await;
    }
}

/// The nodes' ends, each once, in the order in which they come.
fn stops(
    cluster: &Cluster,
) -> FuturesUnordered<impl Future<Output = (String, StopReason)> + use<>> {
    let nodes = cluster.nodes.clone().into_iter();
    nodes
        .map(|(name, node)| async move { (name, node.stopped().await) })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_a_node_does_not_know_stops_it_before_the_entry() {
    let mut cluster = Cluster::formed(&NAMES).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let session = open(&leader, 1, Millis::from_secs(60)).await;
    let token = acquired(&leader, session, 1, "before").await;

    let logged = tokio::spawn(async move { leader.log_unchecked(unheard_of()).await });
    let mut stopped_at = None;
    let mut check = |name: &str, reason: StopReason| {
        let StopReason::UnknownEntry { index, why } = &reason else {
            panic!("{name} stopped for another reason: {reason}")
        };
        assert!(why.contains("99"), "names the kind: {why}");
        assert_eq!(*stopped_at.get_or_insert(*index), *index, "{name}");
        let said = reason.to_string();
        assert!(said.contains("start a newer release"), "{said}");
        *index
    };
    // A leader stops as soon as it knows that the entry is committed, maybe before it has said so;
    // the next one finds out by itself. The last node is alone then, and may never hear of it.
    let mut stops = stops(&cluster);
    for _ in 0..cluster.nodes.len() - 1 {
        let (name, reason) = within("stop", stops.next()).await.unwrap();
        let index = check(&name, reason);
        let node = &cluster.nodes[&name];
        assert_eq!(node.status().applied_index, index - 1, "{name}");
        let held = holder(node, "before");
        assert_eq!(
            held,
            Some((session.id, token)),
            "{name} has what came before"
        );
    }
    drop(stops);

    // A restart does not get past it: at once if the node knows that the entry is committed, else
    // when it hears so.
    for name in NAMES {
        cluster.crash(name).await;
    }
    for name in NAMES {
        match Node::start(cluster.config(name)).await {
            Ok(node) => {
                cluster.nodes.insert(name.to_owned(), node);
            }
            Err(StartError::Seat(SeatError::Stopped(reason))) => {
                check(name, reason);
            }
            Err(other) => panic!("{other}"),
        }
    }
    let mut stops = self::stops(&cluster);
    for _ in 1..cluster.nodes.len() {
        let (name, reason) = within("stop after a restart", stops.next()).await.unwrap();
        check(&name, reason);
    }
    let logged = within("the end of the call", logged).await.unwrap();
    assert!(
        !matches!(logged, Ok(_) | Err(ProposeError::NotDone { .. })),
        "it is in the log and was not applied: {logged:?}"
    );
}
