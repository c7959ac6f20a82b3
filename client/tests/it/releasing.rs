//! Releasing, handing over, closing: belief ends before the request leaves.

use std::task::{Context, Poll};
use std::time::Duration;

use ringfence_client::attach::{Attached, Unsent};
use ringfence_client::proto::client_frame::Body as Ask;
use ringfence_client::{Loss, ReleaseError, TransferError};
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::support::{
    Act, Cluster, alone, client, eventually, is_acquire, is_release, session, within,
};

const TTL: Duration = Duration::from_secs(60);

fn is_close(ask: &Ask) -> bool {
    matches!(ask, Ask::Close(_))
}

fn is_transfer(ask: &Ask) -> bool {
    matches!(ask, Ask::Transfer(_))
}

#[tokio::test]
async fn belief_ends_before_the_release_leaves() {
    let (cluster, node, session) = alone().await;
    let lease = session.acquire("db").send().await.unwrap();
    let lost = lease.lost();
    node.script(is_release, Act::HoldRequest, 1);

    let releasing = tokio::spawn(lease.release());
    assert_eq!(within("the end of belief", lost).await, Loss::Released);
    eventually("the request", || node.holds() == 1).await;
    assert!(cluster.model().held.contains_key("db"));
    node.let_go(false);

    within("the release", releasing).await.unwrap().unwrap();
    assert!(cluster.model().is_quiet());
}

#[tokio::test]
async fn dropping_a_lease_releases_it() {
    let (cluster, _node, session) = alone().await;
    let lease = session.acquire("db").send().await.unwrap();
    let lost = lease.lost();

    drop(lease);

    assert_eq!(within("the end of belief", lost).await, Loss::Released);
    eventually("the release", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn a_dropped_release_goes_on() {
    let (cluster, node, session) = alone().await;
    let lease = session.acquire("db").send().await.unwrap();
    node.script(is_release, Act::BreakBefore, 2);

    let release = tokio::spawn(lease.release());
    eventually("a try", || cluster.count(is_release) > 0).await;
    release.abort();

    eventually("the release", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn an_acquire_does_not_overtake_the_release_before_it() {
    let (cluster, node, session) = alone().await;
    node.script(is_release, Act::HoldRequest, 1);
    drop(session.acquire("db").send().await.unwrap());

    let acquiring = tokio::spawn(session.acquire("db").send());
    eventually("the release", || node.holds() == 1).await;
    node.let_go(false);

    let again = within("the grant", acquiring).await.unwrap().unwrap();
    assert_eq!(again.token().get(), 2);
    assert_eq!(cluster.model().grants, 2);
}

#[tokio::test]
async fn another_attachment_that_leaves_opens_no_way_past_a_release() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let client = client(&[&node]).await;
    let session = session(&client, TTL).await;
    let attached = client
        .attach(session.handle(), Duration::MAX)
        .await
        .unwrap();
    let lease = session.acquire("db").send().await.unwrap();
    node.script(is_release, Act::HoldRequest, 1);
    drop(lease);
    eventually("the release", || node.holds() == 1).await;

    attached.leave();
    let acquiring = tokio::spawn(session.acquire("db").send());
    tokio::time::sleep(Duration::from_millis(50)).await;

    assert_eq!(cluster.count(is_acquire), 1, "it has overtaken the release");
    node.let_go(false);
    let next = within("the next grant", acquiring).await.unwrap().unwrap();
    assert_eq!(next.token().get(), 2);
}

#[tokio::test]
async fn a_release_of_what_was_lost_says_so() {
    let (cluster, _node, session) = alone().await;
    let lease = session.acquire("db").send().await.unwrap();
    cluster.change(|model| model.end_held_by_operator("db"));

    let error = lease.release().await.unwrap_err();

    assert!(
        matches!(error, ReleaseError::Lost(Loss::GrantEnded { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_transfer_hands_over_without_a_gap() {
    let (cluster, node, alice) = alone().await;
    let bob = session(&client(&[&node]).await, TTL).await;
    let lease = alice.acquire("db").send().await.unwrap();
    let lost = lease.lost();
    let waiting = tokio::spawn(bob.acquire("db").wait(TTL).send());
    eventually("the waiter", || !cluster.model().queue.is_empty()).await;

    let transferred = within("the hand-over", lease.transfer_to(Some(bob.id())))
        .await
        .unwrap();

    let held = within("the grant", waiting).await.unwrap().unwrap();
    assert_eq!(transferred.to, bob.id());
    assert_eq!(transferred.token, held.token());
    assert_eq!(within("the end of belief", lost).await, Loss::Released);
    assert!(held.is_valid());
    assert_eq!(cluster.count(is_release), 0);
}

#[tokio::test]
async fn belief_ends_before_a_transfer_leaves_and_returns_only_to_its_owner() {
    let (cluster, node, alice) = alone().await;
    let lease = alice.acquire("db").send().await.unwrap();
    let (token, lost, again) = (lease.token(), lease.lost(), lease.lost());
    let mut service = lease.attach().layer(Service);
    node.script(is_transfer, Act::HoldRequest, 1);

    let transferring = tokio::spawn(lease.transfer_to(None));

    assert_eq!(within("the end of belief", lost).await, Loss::Released);
    eventually("the request", || node.holds() == 1).await;
    let call = |service: &mut Attached<Service>| service.call(http::Request::new(()));
    assert!(matches!(call(&mut service).await, Err(Unsent::Lost(_))));
    node.let_go(false);
    let error = within("the answer", transferring).await.unwrap();
    let Err(TransferError::NotWaiting { lease: Some(lease) }) = error else {
        panic!("{error:?}")
    };
    // Whoever has heard that it was lost never hears that it is held.
    assert!(matches!(call(&mut service).await, Err(Unsent::Lost(_))));
    assert_eq!(within("the end of belief", again).await, Loss::Released);
    assert!(lease.is_valid());
    assert_eq!(lease.token(), token);
    let mut anew = lease.attach().layer(Service);
    assert!(call(&mut anew).await.is_ok());

    cluster.change(|model| model.revoke("db"));
    node.break_streams();
    let loss = within("the loss", lease.lost()).await;
    assert!(matches!(loss, Loss::GrantEnded { .. }), "{loss}");
}

/// Answers everything.
struct Service;

impl tower_service::Service<http::Request<()>> for Service {
    type Response = http::Response<()>;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<()>) -> Self::Future {
        std::future::ready(Ok(http::Response::new(())))
    }
}

#[tokio::test]
async fn a_transfer_that_nobody_waits_for_gives_the_lease_back() {
    let (cluster, _node, alice) = alone().await;
    let lease = alice.acquire("db").send().await.unwrap();
    let token = lease.token();

    let error = within("the refusal", lease.transfer_to(None))
        .await
        .unwrap_err();

    let TransferError::NotWaiting { lease: Some(lease) } = error else {
        panic!("{error:?}")
    };
    assert_eq!(lease.token(), token);
    assert!(lease.is_valid());
    drop(lease);
    eventually("the release", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn a_dropped_transfer_leaves_nothing_behind() {
    let (cluster, node, alice) = alone().await;
    let lease = alice.acquire("db").send().await.unwrap();
    node.script(is_transfer, Act::HoldRequest, 1);
    let transferring = tokio::spawn(lease.transfer_to(None));
    eventually("the request", || node.holds() == 1).await;

    transferring.abort();
    node.let_go(false);

    eventually("the release", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn the_last_drop_closes_the_session_behind_its_releases() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let client = client(&[&node]).await;
    let session = session(&client, TTL).await;
    let lease = session.acquire("db").send().await.unwrap();
    drop(client);
    drop(session);
    assert!(lease.is_valid());

    drop(lease);

    eventually("the close", || cluster.model().sessions.is_empty()).await;
    assert_eq!(cluster.count(is_release), 1);
    assert_eq!(cluster.count(is_close), 1);
    eventually("the end of the stream", || node.streams() == 0).await;
}

#[tokio::test]
async fn closing_ends_belief_first() {
    let (cluster, node, session) = alone().await;
    let lease = session.acquire("db").send().await.unwrap();
    node.script(is_close, Act::HoldRequest, 1);

    let closing = tokio::spawn(session.close());
    eventually("the request", || node.holds() == 1).await;
    assert_eq!(lease.loss(), Some(Loss::Closed));
    node.let_go(false);

    within("the close", closing).await.unwrap().unwrap();
    assert!(cluster.model().sessions.is_empty());
}

#[tokio::test]
async fn a_session_that_is_left_stays_as_it_is() {
    let (cluster, _node, session) = alone().await;
    let lease = session.acquire("db").send().await.unwrap();
    let client_lost = lease.lost();

    let handle = session.leave();

    assert_eq!(within("the end of belief", client_lost).await, Loss::Left);
    drop(lease);
    assert_eq!(cluster.count(|ask| is_release(ask) || is_close(ask)), 0);
    assert!(cluster.model().sessions.contains_key(&handle.session.get()));
}
