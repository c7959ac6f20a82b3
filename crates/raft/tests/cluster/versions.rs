//! Entries that a node does not know: kept out of the log, and never passed over (I15).

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ringfence_core::{
    Command, Identity, Millis, OpenForPod, OpenId, Outcome, Pod, PodText, Secret,
};
use ringfence_proto::record::{RECORD_VERSION, encode_command};
use ringfence_raft::{Node, NodeConfig, ProposeError, SeatError, StartError, StopReason};

use crate::harness::{Cluster, acquired, eventually, holder, open, propose, within};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// A command of kind 99, which no release has.
fn unheard_of() -> Bytes {
    Bytes::from_static(&[0x9a, 0x06, 0x00])
}

/// Proposes it until a leader refuses it.
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

/// A session for a Pod: a command of version 2.
fn for_a_pod() -> Command {
    let pod = PodText {
        namespace: "default",
        name: "web-0",
        uid: "a3d1c1ee-0000-4000-8000-000000000001",
        container: "",
    };
    Command::OpenForPod(OpenForPod {
        id: OpenId::new([7; 16]),
        secret: Secret::new([7; 16]),
        seen: None,
        identity: Identity::parse("web-0").unwrap(),
        pod: Pod::parse(pod).unwrap(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_every_member_knew_once_is_logged_although_a_member_is_down_after_a_restart() {
    let mut cluster = Cluster::formed(&NAMES).await;
    for node in cluster.nodes.values() {
        let level = || node.read(|state| state.level());
        eventually("the level of this release", || level() == RECORD_VERSION).await;
    }
    for name in NAMES {
        cluster.crash(name).await;
    }
    // What n3 knows is not heard by any leader from now on.
    for name in ["n1", "n2"] {
        cluster.start(name).await;
    }
    cluster.serving("n1").await;
    let outcome = within("the session", propose(&cluster.nodes["n1"], for_a_pod())).await;
    assert!(matches!(outcome, Outcome::Opened(_)), "{outcome:?}");
}

/// Whichever node is asked: whether a node watches Pods depends on who leads.
#[tokio::test(flavor = "multi_thread")]
async fn whether_a_session_may_be_bound_to_a_pod_is_decided_by_the_leader() {
    for leader_takes in [false, true] {
        let mut cluster = Cluster::new(&NAMES);
        cluster.adjust = match leader_takes {
            // The first of them leads, since the others wait for very long.
            true => |config| unlike_the_others(config, true),
            false => |config| unlike_the_others(config, false),
        };
        cluster.start_all().await;
        assert_eq!(cluster.leader().await, "n1");
        for (name, node) in &cluster.nodes {
            let level = || node.read(|state| state.level());
            eventually("the level of this release", || level() == RECORD_VERSION).await;
            let opened = within("an answer", node.propose(for_a_pod())).await;
            match opened {
                Ok(applied) if leader_takes => {
                    let outcome = applied.outcome;
                    assert!(matches!(outcome, Outcome::Opened(_)), "{name}: {outcome:?}");
                }
                Err(ProposeError::NotDone {
                    why,
                    retry_after: None,
                    ..
                }) if !leader_takes => assert!(why.contains("--kube-pods"), "{name}: {why}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

/// `n1` takes sessions for Pods if the others do not, and leads before they would.
fn unlike_the_others(config: &mut NodeConfig, takes: bool) {
    let is_first = config.name == "n1";
    config.pod_sessions = is_first == takes;
    if !is_first {
        let patient = std::time::Duration::from_secs(20);
        (config.timing.election_min, config.timing.election_max) = (patient, 2 * patient);
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
    // the next one finds out on its own. The last node is alone then, and may never hear of it.
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

/// A newer release has raised the level, and this node was rolled back. It knows the kind of the entry
/// and not the level: what follows means something else there.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_raises_the_level_beyond_a_node_stops_it() {
    let mut cluster = Cluster::formed(&["n1"]).await;
    let node = cluster.nodes["n1"].clone();
    let level = || node.read(|state| state.level());
    eventually("the level of this release", || level() == RECORD_VERSION).await;
    let session = open(&node, 1, Millis::from_secs(60)).await;
    let token = acquired(&node, session, 1, "before").await;
    let raise = Command::RaiseLevel {
        level: RECORD_VERSION + 1,
    };

    let logging = node.clone();
    let logged = tokio::spawn(async move { logging.log_unchecked(encode_command(&raise)).await });
    let check = |reason: StopReason| {
        let said = reason.to_string();
        assert!(matches!(reason, StopReason::UnknownEntry { .. }), "{said}");
        assert!(said.contains("start a newer release"), "{said}");
    };
    check(within("the stop", node.stopped()).await);
    assert_eq!(level(), RECORD_VERSION);
    assert_eq!(holder(&node, "before"), Some((session.id, token)));
    let logged = within("the end of the call", logged).await.unwrap();
    assert!(logged.is_err(), "{logged:?}");

    cluster.crash("n1").await;
    match Node::start(cluster.config("n1")).await {
        Ok(node) => check(within("the stop after a restart", node.stopped()).await),
        Err(StartError::Seat(SeatError::Stopped(reason))) => check(reason),
        Err(other) => panic!("{other}"),
    }
}
