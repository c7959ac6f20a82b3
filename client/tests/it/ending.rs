//! What is under way when a client or a session ends.

use std::time::Duration;

use ringfence_client::{AcquireError, BootClock, Client, Clock, OpenError, Session, ShutdownError};
use ringfence_proto::v1::client_frame::Body as Ask;
use tokio::task::JoinHandle;

use crate::support::{
    Act, Cluster, Node, alone, client, eventually, is_acquire, is_open, is_release, served,
    session, within,
};

/// A session's owner, and another client that has attached to the session.
async fn attached() -> (Cluster, Node, Session, Client, Session) {
    let (cluster, node, own) = alone().await;
    let other = client(&[&node]).await;
    let resumed = other.attach(own.handle(), Duration::MAX).await.unwrap();
    (cluster, node, own, other, resumed)
}

/// Begins to acquire; the node keeps the reply until [`Node::let_go`].
async fn in_flight<T: Send + 'static>(
    node: &Node,
    acquiring: impl IntoFuture<Output = T, IntoFuture: Send + 'static>,
) -> JoinHandle<T> {
    node.script(is_acquire, Act::HoldReply, 1);
    let acquiring = tokio::spawn(acquiring.into_future());
    eventually("the request", || node.holds() == 1).await;
    acquiring
}

/// Begins to shut a client down.
fn shutting_down(client: &Client) -> JoinHandle<Result<(), ShutdownError>> {
    let client = client.clone();
    tokio::spawn(async move { client.shutdown().await })
}

#[tokio::test]
async fn what_is_locked_while_a_client_shuts_down_is_given_back() {
    let (cluster, node, client) = served().await;
    let locking = in_flight(&node, client.lock("db").ttl(Duration::from_secs(60))).await;

    let ending = shutting_down(&client);
    // It has begun, and waits for the answer.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!ending.is_finished());
    node.let_go(false);
    within("the end", ending).await.unwrap().unwrap();

    assert!(is_free(&cluster));
    let locked = within("an answer", locking).await.unwrap();
    let is_shut = matches!(locked, Err(AcquireError::Open(OpenError::ShutDown)));
    assert!(is_shut, "a client that was shut down holds {locked:?}");
}

/// A cluster that answers too late keeps no client from its end, and learns when it does.
#[tokio::test]
async fn what_is_locked_after_a_client_has_shut_down_is_given_back() {
    let (cluster, node, client) = served().await;
    let locking = in_flight(&node, client.lock("db").ttl(Duration::from_secs(60))).await;

    within("the end", client.shutdown()).await.unwrap();
    node.let_go(false);
    let locked = within("an answer", locking).await.unwrap();
    assert!(
        locked.is_err(),
        "a client that was shut down holds {locked:?}"
    );
    eventually("the release", || is_free(&cluster)).await;
}

#[tokio::test]
async fn a_grant_that_comes_when_a_resumed_session_was_left_is_released() {
    is_released_after(async |_, resumed| {
        let _handle = resumed.detach();
    })
    .await;
}

#[tokio::test]
async fn a_grant_that_comes_when_a_client_was_shut_down_is_released() {
    is_released_after(async |client, _| client.shutdown().await.unwrap()).await;
}

/// A grant that comes after the end belongs to no one, and the one who keeps the session alive
/// would keep it from all others.
async fn is_released_after(end: impl AsyncFnOnce(Client, Session)) {
    let (cluster, node, _own, other, resumed) = attached().await;
    let acquiring = in_flight(&node, resumed.acquire("db").send()).await;

    within("the end", end(other, resumed)).await;
    node.let_go(false);
    let acquired = within("an answer", acquiring).await.unwrap();
    assert!(acquired.is_err(), "{acquired:?}");
    eventually("the release", || is_free(&cluster)).await;
}

/// The same for one that comes while the client still gives back what it has.
#[tokio::test]
async fn a_grant_that_comes_while_a_client_shuts_down_is_released() {
    let (cluster, node, _own, other, resumed) = attached().await;
    let _held = resumed.acquire("first").send().await.unwrap();
    let acquiring = in_flight(&node, resumed.acquire("db").send()).await;
    // The answer to this release takes a while: it is sent again over another connection.
    node.script(is_release, Act::Swallow, 1);

    let ending = shutting_down(&other);
    eventually("the release", || cluster.count(is_release) == 1).await;
    node.let_go(false);
    let acquired = within("an answer", acquiring).await.unwrap();
    let ended = within("the end", ending).await.unwrap();

    assert!(ended.is_ok(), "{ended:?}");
    if let Ok(lease) = &acquired {
        assert!(
            !lease.is_valid(),
            "a client that was shut down holds {lease:?}"
        );
    }
    eventually("the release", || is_free(&cluster)).await;
}

fn is_close(ask: &Ask) -> bool {
    matches!(ask, Ask::Close(_))
}

/// "… and waits until the cluster has answered, within the request timeout."
#[tokio::test]
async fn a_client_shuts_down_within_the_request_timeout() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let builder = Client::builder().endpoints([node.address()]);
    let client = builder.request_timeout(TIMEOUT).connect().await.unwrap();
    let _session = session(&client, Duration::from_secs(60)).await;
    node.script(is_open, Act::Swallow, usize::MAX);
    node.script(is_close, Act::Swallow, usize::MAX);
    let opening = client.clone();
    let _opening = tokio::spawn(async move { opening.lock("db").await });
    node.script(is_acquire, Act::Swallow, usize::MAX);
    eventually("the request", || cluster.count(is_acquire) > 0).await;
    tokio::time::sleep(TIMEOUT / 4).await;

    let begun = BootClock.now();
    let ended = within("the end", client.shutdown()).await;

    let took = BootClock.now().saturating_since(begun);
    assert!(ended.is_err(), "nobody has answered");
    assert!(took < TIMEOUT + TIMEOUT / 4, "it took {took:?}");
}

fn is_free(cluster: &Cluster) -> bool {
    let lease = cluster.model().get("db").lease;
    lease.is_none_or(|lease| lease.holder.is_none())
}

fn is_cancel(ask: &Ask) -> bool {
    matches!(ask, Ask::Cancel(_))
}

/// What was given up a moment before is not over before the cluster has heard of it: a process that
/// ends behind the shutdown would never tell.
async fn is_awaited(under_way: fn(&Ask) -> bool, give_up: impl AsyncFnOnce(&Node, Session)) {
    let (cluster, node, _own, other, resumed) = attached().await;
    give_up(&node, resumed).await;
    eventually("the request", || cluster.count(under_way) > 0).await;

    let ending = shutting_down(&other);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let early = ending.is_finished();
    assert!(!early || is_free(&cluster), "it has ended, and holds db");
    node.let_go(false);
    within("the end", ending).await.unwrap().unwrap();
    assert!(is_free(&cluster));
}

#[tokio::test]
async fn a_release_that_is_under_way_is_waited_for() {
    is_awaited(is_release, async |node, resumed| {
        let lease = resumed.acquire("db").send().await.unwrap();
        node.script(is_release, Act::HoldRequest, 1);
        drop(lease);
    })
    .await;
}

#[tokio::test]
async fn a_cancel_that_is_under_way_is_waited_for() {
    is_awaited(is_cancel, async |node, resumed| {
        node.script(is_acquire, Act::Swallow, 1);
        node.script(is_cancel, Act::HoldRequest, 1);
        let acquiring = tokio::time::timeout(
            Duration::from_millis(100),
            resumed.acquire("db").wait(Duration::from_secs(60)).send(),
        );
        assert!(acquiring.await.is_err());
    })
    .await;
}
