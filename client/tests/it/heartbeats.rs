//! The work's heartbeat: a session is renewed while its work moves, and no longer.

use std::time::Duration;

use ringfence_client::{Loss, SessionState};

use crate::support::{Cluster, Node, eventually, is_keep_alive, served, session, within};

const TTL: Duration = Duration::from_millis(1_500);

async fn opened(ttl: Duration) -> (Cluster, Node, ringfence_client::Session) {
    let (cluster, node, client) = served().await;
    let session = session(&client, ttl).await;
    (cluster, node, session)
}

#[tokio::test]
async fn s0_7_work_that_is_stuck_is_not_renewed() {
    let (cluster, _node, session) = opened(TTL).await;
    let lease = session.acquire("db").send().await.unwrap();
    let promise = session.heartbeat(Duration::from_millis(1));
    let until = lease.valid_until();

    assert_eq!(within("the loss", lease.lost()).await, Loss::Stuck);
    // The opening and the acquire may have extended it once; no keep-alive has.
    assert!(lease.valid_until() <= until + TTL / 3);
    assert_eq!(cluster.count(is_keep_alive), 0);
    assert!(Loss::Stuck.to_string().contains("heartbeat"));
    drop(promise);
}

#[tokio::test]
async fn other_requests_do_not_renew_a_session_whose_work_is_stuck() {
    let (_cluster, _node, session) = opened(TTL).await;
    let lease = session.acquire("db").send().await.unwrap();
    let _promise = session.heartbeat(Duration::from_millis(1));
    let busy = async {
        while let Ok(other) = session.acquire("other").send().await {
            if other.release().await.is_err() {
                break;
            }
        }
    };
    within("requests fail in the end", busy).await;
    assert_eq!(lease.loss(), Some(Loss::Stuck));
}

#[tokio::test]
async fn a_late_beat_renews_at_once() {
    let (_cluster, _node, session) = opened(4 * TTL).await;
    // Less than the time to the first keep-alive, and enough for one to leave behind a beat.
    let promise = session.heartbeat(TTL);
    let mut state = session.state();
    let jeopardy = state.wait_for(|state| *state != SessionState::Live);
    drop(within("jeopardy", jeopardy).await.unwrap());

    promise.beat();

    let live = state.wait_for(|state| *state == SessionState::Live);
    drop(within("a renewal", live).await.unwrap());
    drop(promise);
}

#[tokio::test]
async fn a_promise_that_is_dropped_binds_nobody() {
    let (cluster, _node, session) = opened(TTL).await;
    drop(session.heartbeat(Duration::ZERO));
    eventually("keep-alives go on", || cluster.count(is_keep_alive) >= 4).await;
    assert!(session.is_live());
}
