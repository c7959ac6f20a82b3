//! Losses that keep-alives acknowledge: the log has those that there are, and none that was invented.

use ringfence_core::{FencingToken, Millis, SessionId};
use ringfence_raft::KeepAlive;

use crate::harness::{Cluster, Session, lose, open, within};

const TTL: Millis = Millis::from_secs(300);
/// As many entries as a test takes for something else: ticks, and the keep-alive itself.
const OTHERS: u64 = 10;

fn keep_alive(session: Session, acknowledged: Vec<(SessionId, FencingToken)>) -> KeepAlive {
    KeepAlive {
        sessions: vec![(session.id, session.secret)],
        acknowledged,
        caller: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invented_losses_never_reach_the_log() {
    let cluster = Cluster::formed(&["n1"]).await;
    let node = cluster.nodes["n1"].clone();
    let (session, other) = (open(&node, 1, TTL).await, open(&node, 2, TTL).await);
    let lost = lose(&node, session, 2).await;
    let invented = |id| move |n| (id, FencingToken::new(n).unwrap());
    let mut acknowledged: Vec<_> = (1 << 40..(1 << 40) + 9_000)
        .map(invented(session.id))
        .collect();
    // One that is another session's, and one of a session that the message does not name.
    acknowledged.push((other.id, lost[0]));
    let mut to_other = keep_alive(other, vec![(other.id, lost[0]), (session.id, lost[0])]);
    to_other.acknowledged.extend(acknowledged.iter().copied());
    // Among all of them, one that there is.
    acknowledged.push((session.id, lost[1]));

    let before = node.metrics().last_log_index;
    let kept = within("an answer", node.keep_alive(to_other))
        .await
        .unwrap();
    assert!(kept.ended.is_empty() && kept.lost.is_empty(), "{kept:?}");
    let request = keep_alive(session, acknowledged);
    let kept = within("an answer", node.keep_alive(request)).await.unwrap();
    let entries = node.metrics().last_log_index - before;
    assert!(entries <= OTHERS, "{entries} entries");
    assert!(kept.ended.is_empty() && kept.untold.is_empty(), "{kept:?}");
    let listed = kept.lost.iter().flat_map(|(_, grants)| grants);
    let listed: Vec<_> = listed.map(|grant| grant.token).collect();
    assert_eq!(listed, lost[..1], "the other one was noticed");
}
