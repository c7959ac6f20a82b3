//! A cluster that lost its majority goes on from one survivor, and the old one is over.

use std::sync::Arc;

use ringfence_core::{ClusterId, FencingToken, Millis, Verdict};
use ringfence_raft::{Backup, Node, RecoverError, Role, StartError, StopReason, recover};

use crate::harness::{Cluster, acquired, eventually, name, open, within};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// Three nodes that have ended, and a token that was granted there.
async fn ended() -> (Cluster, ClusterId, u64) {
    let mut cluster = Cluster::new(&NAMES);
    cluster.adjust = |config| config.token_floor = None;
    cluster.start_all().await;
    let node = cluster.nodes["n3"].clone();
    let session = open(&node, 1, Millis::from_secs(60)).await;
    let token = acquired(&node, session, 1, "lease").await;
    let id = node.status().cluster.unwrap();
    cluster.crash_all().await;
    (cluster, id, token)
}

/// The cluster that goes on from n3, which keeps its name and its address.
async fn gone_on(old: &Cluster, id: ClusterId) -> Cluster {
    let out = old.data_dir("n3").with_extension("backup");
    let recovered = recover(&old.data_dir("n3"), id, &out).unwrap();
    let backup = Backup::read(&out).unwrap();
    assert_eq!(backup.digest, recovered.digest);
    assert_eq!(backup.contents.header.index, recovered.index);
    let mut new = Cluster::to_restore(&["n3"], Arc::new(backup));
    new.share_port("n3", old);
    new.start_all().await;
    new
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_majority_that_comes_back_is_superseded() {
    let (mut old, id, token) = ended().await;
    let retired = old.config("n3");
    let new = gone_on(&old, id).await;

    let refused = Node::start(retired).await.err().unwrap();
    assert!(matches!(refused, StartError::Retired { .. }), "{refused}");

    for name in ["n1", "n2"] {
        old.start(name).await;
    }
    for name in ["n1", "n2"] {
        let reason = within("its end", old.nodes[name].stopped()).await;
        assert!(
            matches!(reason, StopReason::Superseded { cluster, .. } if cluster == id),
            "{reason:?}"
        );
    }
    let node = &new.nodes["n3"];
    assert!(node.status().serving);
    let token = FencingToken::new(token).unwrap();
    let verdict = node.read(|machine| machine.check(&name("lease"), token));
    assert_eq!(verdict, Verdict::Ended);
}

/// Without certificates one forged answer must not end a cluster that is well. When one of the two
/// members of the old cluster that are left ends, the other one cannot commit, and believes it.
async fn goes_on_with_a_leader_alone(leader_ends: bool) {
    let (mut old, id, _) = ended().await;
    let new = gone_on(&old, id).await;
    old.adjust = |config| {
        config.token_floor = None;
        config.peer_port_is_local = false;
    };
    for name in ["n1", "n2"] {
        old.start(name).await;
    }
    for name in ["n1", "n2"] {
        old.serving(name).await;
    }
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    for name in ["n1", "n2"] {
        assert!(old.nodes[name].status().serving, "{name}");
    }
    let leads = |name: &&str| old.nodes[*name].status().role == Role::Leader;
    let leader = ["n1", "n2"].into_iter().find(leads).unwrap();
    let follower = if leader == "n1" { "n2" } else { "n1" };
    let (ends, stays) = match leader_ends {
        true => (leader, follower),
        false => (follower, leader),
    };
    old.crash(ends).await;
    let reason = within("its end", old.nodes[stays].stopped()).await;
    assert!(
        matches!(reason, StopReason::Superseded { .. }),
        "{reason:?}"
    );
    eventually("the new cluster", || new.nodes["n3"].status().serving).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_open_peer_port_a_follower_believes_it_without_a_leader() {
    goes_on_with_a_leader_alone(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_open_peer_port_a_leader_believes_it_without_a_majority() {
    goes_on_with_a_leader_alone(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_survivor_is_left_as_it_is() {
    let (mut old, id, _) = ended().await;
    let out = old.data_dir("n3").with_extension("backup");
    let other = ClusterId::new([7; 16]);
    let refused = recover(&old.data_dir("n3"), other, &out).unwrap_err();
    assert!(matches!(refused, RecoverError::OtherCluster { found, .. } if found == id));
    let empty = old.data_dir("n9");
    let refused = recover(&empty, id, &out).unwrap_err();
    assert!(
        matches!(refused, RecoverError::NoMember { .. }),
        "{refused}"
    );
    assert!(!out.exists() && !empty.exists());

    for name in NAMES {
        old.start(name).await;
    }
    let refused = recover(&old.data_dir("n3"), id, &out).unwrap_err();
    assert!(matches!(refused, RecoverError::Running { .. }), "{refused}");
    for name in NAMES {
        old.serving(name).await;
    }
}
