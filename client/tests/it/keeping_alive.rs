//! Keep-alives: one message for all sessions, on time, and each reply counts for its own request.

use std::sync::Arc;
use std::time::Duration;

use ringfence_client::{Client, SessionState};
use ringfence_proto::v1::client_frame::Body as Ask;

use crate::support::{
    Act, Cluster, SteppedClock, eventually, is_keep_alive, served, session, within,
};

const TTL: Duration = Duration::from_millis(1_500);

#[tokio::test]
async fn one_message_keeps_all_sessions_alive() {
    let (cluster, node, client) = served().await;
    let mut sessions = Vec::new();
    for _ in 0..50 {
        sessions.push(session(&client, TTL).await);
    }
    // However far apart they were opened: a new stream makes all due at once.
    node.break_streams();

    let largest = || {
        let received = cluster.received(is_keep_alive).into_iter();
        let sizes = received.map(|(_, ask)| match ask {
            Ask::KeepAlive(ask) => ask.sessions.len(),
            _ => 0,
        });
        sizes.max()
    };
    eventually("a keep-alive for all", || largest() == Some(50)).await;
    let sent = client.now();
    eventually("all are renewed", || {
        sessions
            .iter()
            .all(|session| session.valid_until() > sent + TTL)
    })
    .await;

    assert!(sessions.iter().all(|session| session.is_live()));
    let received = cluster.count(is_keep_alive);
    assert!(received <= 60, "{received} keep-alives for 50 sessions");
}

#[tokio::test]
async fn a_swapped_reply_extends_by_its_own_request() {
    let (_cluster, node, client) = served().await;
    let session = session(&client, Duration::from_secs(3)).await;
    node.script(is_keep_alive, Act::HoldReply, 2);

    eventually("two keep-alives are unanswered", || node.holds() == 2).await;
    let now = client.now();
    node.let_go(true);
    eventually("the newer one counts", || {
        session.valid_until() > now + Duration::from_millis(2_700)
    })
    .await;

    // Sent before now, so it can never be believed in for longer than this.
    assert!(session.valid_until() <= now + Duration::from_millis(2_910));
}

#[tokio::test]
async fn a_new_stream_is_told_at_once_who_is_alive() {
    let (cluster, node, client) = served().await;
    let session = session(&client, Duration::from_secs(3_600)).await;
    let opened = session.valid_until();

    node.break_streams();

    eventually("a keep-alive", || cluster.count(is_keep_alive) == 1).await;
    eventually("its acknowledgement", || session.valid_until() > opened).await;
}

#[tokio::test]
async fn a_blocked_executor_loses_no_session() {
    let (_cluster, _node, client) = served().await;
    let session = session(&client, Duration::from_millis(600)).await;
    let lease = session.acquire("db").send().await.unwrap();
    let before = lease.valid_until();

    // This test has a single thread, and nothing of it yields here.
    while client.now() < before + Duration::from_millis(600) {
        std::hint::spin_loop();
    }

    assert!(lease.is_valid());
    assert!(lease.valid_until() > before);
}

#[tokio::test]
async fn silence_brings_jeopardy_first_and_then_the_end() {
    let (_cluster, node, client) = served().await;
    let session = session(&client, TTL).await;
    let mut state = session.state();
    assert_eq!(*state.borrow(), SessionState::Live);
    node.script(is_keep_alive, Act::Swallow, usize::MAX);

    within(
        "jeopardy",
        state.wait_for(|state| matches!(state, SessionState::Jeopardy { .. })),
    )
    .await
    .unwrap();
    assert!(session.is_live());
    within(
        "the end",
        state.wait_for(|state| matches!(state, SessionState::Lost { .. })),
    )
    .await
    .unwrap();

    // A little early, so that all have heard when the window ends.
    let early = session.valid_until().saturating_since(client.now());
    assert!(early <= Duration::from_millis(20), "{early:?}");
    assert!(!session.is_live());
}

#[tokio::test]
async fn an_acknowledgement_ends_jeopardy() {
    let (_cluster, node, client) = served().await;
    let session = session(&client, TTL).await;
    let mut state = session.state();
    node.script(is_keep_alive, Act::Swallow, usize::MAX);
    within(
        "jeopardy",
        state.wait_for(|state| matches!(state, SessionState::Jeopardy { .. })),
    )
    .await
    .unwrap();

    node.behave();

    within(
        "live again",
        state.wait_for(|state| *state == SessionState::Live),
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn the_wall_of_a_suspend_is_seen_before_any_timer_runs() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let clock = Arc::new(SteppedClock::asleep());
    let client = Client::builder()
        .endpoints([node.address()])
        .clock(Arc::clone(&clock) as _)
        .connect()
        .await
        .unwrap();
    let session = session(&client, Duration::from_secs(60)).await;
    let lease = session.acquire("db").send().await.unwrap();
    assert!(lease.is_valid());

    clock.step(Duration::from_secs(3_600));

    assert!(!lease.is_valid());
    assert!(!session.is_live());
    within("its loss", lease.lost()).await;
}
