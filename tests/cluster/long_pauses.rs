//! The cluster itself is paused: no client's lease may end because the cluster slept.

use std::time::Duration;

use ringfence_tests::{Cluster, Options, Signal};
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_slept_ends_no_session_of_a_live_client() {
    let mut cluster = Cluster::start(Options::alone()).await;
    let mut caller = cluster.caller();
    caller.patience = Duration::from_secs(60);
    let ttl = Duration::from_secs(6);
    let session = caller.open("patient", ttl).await.unwrap();
    let number = session.number();
    let grant = caller
        .acquire(&session, number, "long/lived", None)
        .await
        .unwrap();

    // A client that asks for a keep-alive every second, whether it is answered or not.
    let asking = tokio::spawn(async move {
        loop {
            let reply = caller.keep_alive(&session).await;
            let reply = reply.expect("the cluster answers within a minute");
            assert!(reply.ended.is_empty(), "the session ended: {reply:?}");
            assert!(reply.lost.is_empty(), "a lease was lost: {reply:?}");
            sleep(Duration::from_secs(1)).await;
        }
    });
    sleep(Duration::from_secs(2)).await;
    for at in 0..cluster.len() {
        cluster.signal(at, Signal::Stop);
    }
    sleep(Duration::from_secs(30)).await;
    for at in 0..cluster.len() {
        cluster.signal(at, Signal::Continue);
    }
    // Two TTLs: whatever the wake could have ended has ended by now.
    sleep(2 * ttl).await;
    let verdict = cluster
        .caller()
        .check("long/lived", grant.token)
        .await
        .unwrap();
    assert!(!asking.is_finished(), "the client's session ended");
    assert_eq!(verdict.verdict, 1, "the grant is in force: {verdict:?}");
    asking.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_session_ends_in_time_and_the_next_in_line_is_served() {
    let cluster = Cluster::start(Options::alone()).await;
    let caller = cluster.caller();
    let silent = caller.open("silent", Duration::from_secs(2)).await.unwrap();
    let held = caller
        .acquire(&silent, silent.number(), "turn", None)
        .await
        .unwrap();
    let next = caller.open("next", Duration::from_secs(30)).await.unwrap();
    let asked = ringfence_tests::Journal::now();
    let wait = Some(Duration::from_secs(20));
    let grant = caller
        .acquire(&next, next.number(), "turn", wait)
        .await
        .unwrap();
    let waited = ringfence_tests::Journal::now() - asked;
    assert!(grant.token > held.token);
    assert!(
        waited > Duration::from_millis(1_500),
        "served after {waited:?}: too early"
    );
    assert!(
        waited < Duration::from_secs(5),
        "served after {waited:?}: too late"
    );
}
