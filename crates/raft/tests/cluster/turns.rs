//! Keep-alives of many connections: none waits behind all that others have asked for, at any node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringfence_core::{Millis, Secret, SessionId};
use ringfence_raft::{
    KEEP_ALIVES_FORWARDED_MAX, KeepAlive, KeepAliveSource, Node, SESSIONS_PER_RENEW_MAX,
};

use crate::harness::{Cluster, Session, open, within};

/// Connections that ask for much.
const FLOODS: u64 = 15;
/// Requests that each of them has under way.
const REQUESTS: u64 = 40;
/// Sessions that each of these names.
const SESSIONS: u64 = 1_000;
/// Sessions whose answers come while those counted are still on their way to the code that counts
/// them.
const NOISE: u64 = 20_000;

/// Floods, and then one keep-alive of another connection. Of how many sessions of the floods the
/// keep-alives were answered while it waited.
async fn waits_behind(node: &Node, session: Session) -> u64 {
    let answered = Arc::new(AtomicU64::new(0));
    let session_of_nobody = |n| (SessionId::new(1_000 + n).unwrap(), Secret::new([9; 16]));
    let request = KeepAlive {
        sessions: (0..SESSIONS).map(session_of_nobody).collect(),
        acknowledged: Vec::new(),
        caller: None,
    };
    for _ in 0..FLOODS {
        let source = KeepAliveSource::unique();
        for _ in 0..REQUESTS {
            let answered = answered.clone();
            node.submit_keep_alive(source, request.clone(), move |_| {
                answered.fetch_add(SESSIONS, Ordering::SeqCst);
            });
        }
    }
    // The floods are where they wait.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = answered.load(Ordering::SeqCst);
    let (tell, told) = tokio::sync::oneshot::channel();
    let request = KeepAlive {
        sessions: vec![(session.id, session.secret)],
        acknowledged: Vec::new(),
        caller: None,
    };
    let count = answered.clone();
    node.submit_keep_alive(KeepAliveSource::unique(), request, move |kept| {
        let _gone = tell.send((count.load(Ordering::SeqCst), kept));
    });
    let (at, kept) = within("an answer", told).await.unwrap();
    assert!(kept.is_ok(), "it was refused: {kept:?}");
    let all = async {
        while answered.load(Ordering::SeqCst) < FLOODS * REQUESTS * SESSIONS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("answers to the floods", all).await;
    println!("{before} answered before, {at} when it was");
    at - before
}

#[tokio::test(flavor = "multi_thread")]
async fn one_keep_alive_waits_for_one_turn_also_at_a_follower() {
    let cluster = Cluster::formed(&["n1", "n2", "n3"]).await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let follower = cluster.nodes[&cluster.a_follower().await].clone();
    let session = open(&leader, 1, Millis::from_secs(300)).await;
    let at_leader = waits_behind(&leader, session).await;
    let at_follower = waits_behind(&follower, session).await;
    println!("behind {at_leader} at the leader, behind {at_follower} at a follower");
    // What is forwarded already, and the batch that it becomes part of.
    let most = (KEEP_ALIVES_FORWARDED_MAX + SESSIONS_PER_RENEW_MAX) as u64 + NOISE;
    assert!(at_follower <= most, "behind {at_follower}, allowed: {most}");
}
