//! One call for a lease with a session of its own, and the orderly end of a client.

use std::time::Duration;

use ringfence_client::{
    AcquireError, Elector, FencingToken, Guarded, Loss, OpenError, Refused, Successor,
};
use ringfence_proto::v1::client_frame::Body as Ask;

use crate::support::{
    Act, Cluster, client, eventually, is_acquire, is_keep_alive, is_open, served, session, within,
};

fn is_request(ask: &Ask) -> bool {
    !is_keep_alive(ask)
}

#[tokio::test]
async fn a_free_lease_is_locked_in_one_round_trip_and_given_back_with_its_session() {
    let (cluster, _node, client) = served().await;

    let lease = client.lock("db").ttl(Duration::from_secs(3)).await.unwrap();

    assert_eq!(cluster.distinct(is_request), 1);
    assert!(lease.is_valid() && lease.token().get() == 1);
    assert_eq!(lease.fence().to_string(), "db#1");
    // Its session is kept alive as any other.
    eventually("a keep-alive", || cluster.count(is_keep_alive) > 0).await;
    drop(lease);
    eventually("the end", || {
        let model = cluster.model();
        model.is_quiet() && model.sessions.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_lost_answer_locks_once() {
    let (cluster, node, client) = served().await;
    node.script(is_acquire, Act::BreakAfter, 2);

    let lease = client.lock("db").await.unwrap();

    assert!(lease.is_valid());
    let model = cluster.model();
    assert_eq!((model.grants, model.sessions.len()), (1, 1));
}

#[tokio::test]
async fn a_lock_waits_without_end_or_for_as_long_as_it_is_told() {
    let (cluster, _node, client) = served().await;
    let first = client.lock("db").await.unwrap();

    let held = client.lock("db").identity("bob").try_once().await;
    assert!(matches!(held, Err(AcquireError::Held(_))), "{held:?}");
    let waiting = tokio::spawn(client.lock("db").into_future());
    eventually("the waiter", || !cluster.model().queue.is_empty()).await;
    first.release().await.unwrap();
    let second = within("the grant", waiting).await.unwrap().unwrap();
    assert_eq!(second.token().get(), 2);
    assert_eq!(cluster.count(is_open), 0);

    // One that is dropped leaves no place in the queue, and no session.
    eventually("one session", || cluster.model().sessions.len() == 1).await;
    let waiting = tokio::spawn(client.lock("db").into_future());
    eventually("the waiter", || !cluster.model().queue.is_empty()).await;
    waiting.abort();
    eventually("the end", || {
        let model = cluster.model();
        model.queue.is_empty() && model.sessions.len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_refusal_by_a_guard_ends_belief_by_itself() {
    let (cluster, _node, client) = served().await;
    let lease = client.lock("db").await.unwrap();
    let seven = |_| async { Ok::<u8, Refused>(7) };
    assert_eq!(lease.guarded(seven).await, Ok(7));
    let mistaken = lease.guarded(|fence| async move {
        let expected = fence.name;
        Err::<u8, _>(Refused::MissingFence { expected })
    });
    assert!(matches!(mistaken.await, Err(Guarded::Failed(_))));
    assert!(
        lease.is_valid(),
        "a mistake of the caller says nothing of the grant"
    );

    let newer = FencingToken::new(9).unwrap();
    let stale = lease
        .guarded(|fence| async move { Err::<u8, _>(fence.overtaken_by(newer)) })
        .await;

    assert!(matches!(
        stale,
        Err(Guarded::Failed(Refused::StaleToken { .. }))
    ));
    assert_eq!(lease.loss(), Some(Loss::Reported));
    assert_eq!(
        lease.guarded(seven).await,
        Err(Guarded::Lost(Loss::Reported))
    );
    eventually("the release", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn a_client_that_is_shut_down_leaves_nothing_behind() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let (ours, theirs) = (client(&[&node]).await, client(&[&node]).await);
    let lease = ours.lock("db").await.unwrap();
    let campaign = Elector::new(&ours).campaign("leader").observe(false);
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run_callbacks());
    eventually("it leads", || handle.is_leading()).await;
    // Resumed from a handle: what is held here is released, and the session stays.
    let shared = session(&theirs, Duration::from_secs(60)).await;
    let resumed = ours.attach(shared.handle(), Duration::MAX).await.unwrap();
    let borrowed = resumed.acquire("borrowed").send().await.unwrap();

    within("the end", ours.shutdown()).await.unwrap();

    assert!(!lease.is_valid() && !borrowed.is_valid() && !handle.is_leading());
    assert!(cluster.model().is_quiet());
    let left: Vec<u64> = cluster.model().sessions.keys().copied().collect();
    assert_eq!(left, [shared.id().get()]);
    within("the campaign", running).await.unwrap().unwrap();
    handle.leave(Successor::Next);
    let refused = ours.lock("db").await.unwrap_err();
    assert!(
        matches!(refused, AcquireError::Open(OpenError::ShutDown)),
        "{refused:?}"
    );
    assert!(shared.is_live());
}

#[tokio::test]
async fn a_shutdown_that_is_not_answered_ends_in_time_and_says_what_is_left() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let builder = ringfence_client::Client::builder().endpoints([node.address()]);
    let builder = builder.request_timeout(Duration::from_millis(300));
    let client = builder.connect().await.unwrap();
    let lease = client.lock("db").await.unwrap();
    node.script(|ask| matches!(ask, Ask::Close(_)), Act::Swallow, usize::MAX);

    let error = within("the end", client.shutdown()).await.unwrap_err();

    assert_eq!(error.sessions, [lease.session()]);
    assert!(!lease.is_valid());
}
