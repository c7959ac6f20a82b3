//! Releasing, handing over, closing: belief ends before the request leaves.

use std::task::{Context, Poll};
use std::time::Duration;

use ringfence_client::attach::{Attached, Unsent};
use ringfence_client::{
    CallError, HeldLease, Loss, ReleaseError, Session, TransferError, unstable,
};
use ringfence_proto::Refusal;
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::{Reason, ReleaseRequest, SessionHandle};
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::support::{
    Act, Cluster, LONG, Node, alone, client, eventually, is_acquire, is_release, served,
    served_within, session, within,
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

/// Refusals of one try that say nothing about the grant: another credential may be shown soon.
fn refusals_of_one_try() -> [Refusal; 2] {
    [
        Refusal::new(Reason::Unauthenticated, "the token has expired"),
        Refusal::new(Reason::PermissionDenied, "this principal is banned"),
    ]
}

#[tokio::test]
async fn a_release_goes_on_until_its_credential_is_accepted() {
    for refusal in refusals_of_one_try() {
        let (cluster, node, session) = alone().await;
        let lease = session.acquire("db").send().await.unwrap();
        node.script(is_release, Act::Refuse(refusal.clone()), 2);
        let released = within("the release", lease.release()).await;
        assert!(released.is_ok(), "{refusal}: {released:?}");
        assert!(cluster.model().is_quiet(), "{refusal}");

        let lease = session.acquire("db").send().await.unwrap();
        node.script(is_release, Act::Refuse(refusal), 2);
        drop(lease);
        eventually("the release", || cluster.model().is_quiet()).await;
        assert_eq!(cluster.count(is_release), 6);
    }
}

#[tokio::test]
async fn a_release_that_is_not_accepted_in_time_goes_on_in_the_background() {
    for (tries_lost, refusal) in [0, 1].into_iter().zip(refusals_of_one_try()) {
        let (cluster, node, client) = served_within(Duration::from_secs(1)).await;
        let session = session(&client, TTL).await;
        let lease = session.acquire("db").send().await.unwrap();
        node.script(is_release, Act::BreakBefore, tries_lost);
        node.script(is_release, Act::Refuse(refusal), usize::MAX);

        let error = within("the answer", lease.release()).await.unwrap_err();

        // A try whose fate is not known is not refused by the refusal of another one; the last one
        // may be under way at the deadline.
        let unknown = matches!(error, ReleaseError::Call(CallError::Unknown { .. }));
        let refused = matches!(error, ReleaseError::Call(CallError::Refused(_)));
        assert!(
            unknown || (refused && tries_lost == 0),
            "{tries_lost}: {error:?}"
        );
        let passed = session.acquire("db").send().await;
        assert!(passed.is_err(), "it has overtaken the release");
        assert_eq!(cluster.distinct(is_acquire), 1);

        node.behave();
        eventually("the release", || cluster.model().is_quiet()).await;
        let next = within("the next grant", session.acquire("db").send()).await;
        assert_eq!(next.unwrap().token().get(), 2);
    }
}

#[tokio::test]
async fn a_transfer_goes_on_until_its_credential_is_accepted() {
    let (cluster, node, alice) = alone().await;
    let bob = session(&client(&[&node]).await, TTL).await;
    let lease = alice.acquire("db").send().await.unwrap();
    let waiting = tokio::spawn(bob.acquire("db").wait(TTL).send());
    eventually("the waiter", || !cluster.model().queue.is_empty()).await;
    let [expired, _] = refusals_of_one_try();
    node.script(is_transfer, Act::Refuse(expired), 2);

    let transferred = within("the hand-over", lease.transfer_to(Some(bob.id()))).await;

    let held = within("the grant", waiting).await.unwrap().unwrap();
    assert_eq!(transferred.unwrap().token, held.token());
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
    let (cluster, node, client) = served().await;
    let session = session(&client, TTL).await;
    let attached = client
        .attach(session.handle(), Duration::MAX)
        .await
        .unwrap();
    let lease = session.acquire("db").send().await.unwrap();
    node.script(is_release, Act::HoldRequest, 1);
    drop(lease);
    eventually("the release", || node.holds() == 1).await;

    attached.detach();
    let acquiring = tokio::spawn(session.acquire("db").send());
    tokio::time::sleep(Duration::from_millis(50)).await;

    assert_eq!(
        cluster.distinct(is_acquire),
        1,
        "it has overtaken the release"
    );
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
    // A caller that has heard that it was lost never hears that it is held.
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
    let (cluster, node, client) = served().await;
    let session = session(&client, TTL).await;
    let lease = session.acquire("db").send().await.unwrap();
    drop(client);
    drop(session);
    assert!(lease.is_valid());

    drop(lease);

    eventually("the close", || cluster.model().sessions.is_empty()).await;
    assert_eq!(cluster.distinct(is_release), 1);
    assert_eq!(cluster.distinct(is_close), 1);
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

    let handle = session.detach();

    assert_eq!(
        within("the end of belief", client_lost).await,
        Loss::Detached
    );
    drop(lease);
    assert_eq!(cluster.count(|ask| is_release(ask) || is_close(ask)), 0);
    assert!(cluster.model().sessions.contains_key(&handle.session.get()));
}

/// The frame of a release, as a caller without [`HeldLease`] would write it.
fn release_frame(session: &Session, lease: &HeldLease, number: u64) -> Ask {
    let handle = session.handle();
    Ask::Release(ReleaseRequest {
        session: Some(SessionHandle {
            session: handle.session.get(),
            secret: handle.secret.as_bytes().to_vec().into(),
        }),
        number,
        lowest: number,
        name: lease.name().to_string(),
        token: lease.token().get(),
        close_session: false,
    })
}

/// Waits until the request that ends a grant is under way, and lets it go on only then.
async fn ends_first(node: &Node, lease: HeldLease, ending: impl Future + Send + 'static) {
    assert!(lease.is_valid());
    let ending = tokio::spawn(async move { drop(ending.await) });
    eventually("the request", || node.holds() == 1).await;
    // The cluster may grant it to the next one from here on.
    assert!(!lease.is_valid(), "believed while its end is under way");
    let why = within("the end of belief", lease.lost()).await;
    assert!(why.is_own_doing(), "{why}");
    node.let_go(false);
    within("the answer", ending).await.unwrap();
}

#[tokio::test]
async fn belief_ends_before_a_release_by_token_leaves() {
    let (cluster, node, session) = alone().await;
    let lease = session.acquire("db").send().await.unwrap();
    let (name, token, by) = (lease.name().clone(), lease.token(), session.clone());
    node.script(is_release, Act::HoldRequest, 1);

    ends_first(&node, lease, async move { by.release(&name, token).await }).await;

    assert!(cluster.model().is_quiet());
    assert_eq!(cluster.distinct(is_release), 1);
}

#[tokio::test]
async fn belief_ends_before_a_transfer_by_token_leaves() {
    let (cluster, node, alice) = alone().await;
    let bob = session(&client(&[&node]).await, TTL).await;
    let lease = alice.acquire("db").send().await.unwrap();
    let waiting = tokio::spawn(bob.acquire("db").wait(TTL).send());
    eventually("the waiter", || !cluster.model().queue.is_empty()).await;
    let (name, token, to) = (lease.name().clone(), lease.token(), bob.id());
    node.script(is_transfer, Act::HoldRequest, 1);

    ends_first(&node, lease, async move {
        alice.transfer(&name, token, Some(to)).await.unwrap();
    })
    .await;

    let held = within("the grant", waiting).await.unwrap().unwrap();
    assert!(held.is_valid());
}

#[tokio::test]
async fn a_transfer_by_token_that_nobody_waits_for_gives_the_lease_back() {
    let (cluster, _node, session) = alone().await;
    let held = session.acquire("db").send().await.unwrap();
    let (name, token) = (held.name().clone(), held.token());

    let refused = within("the refusal", session.transfer(&name, token, None)).await;

    let Err(TransferError::NotWaiting { lease: Some(back) }) = refused else {
        panic!("{refused:?}")
    };
    assert!(back.is_valid() && back.token() == token);
    assert!(!held.is_valid(), "it was said that it ended");
    drop(held);
    assert!(back.is_valid());
    drop(back);
    eventually("the release", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn a_frame_of_the_callers_own_ends_belief_before_it_leaves() {
    let (cluster, node, client) = served().await;
    let session = session(&client, TTL).await;
    let lease = session.acquire("db").send().await.unwrap();
    let frame = release_frame(&session, &lease, 900);
    node.script(is_release, Act::HoldRequest, 1);

    ends_first(&node, lease, async move {
        unstable::request(&client, frame, LONG).await
    })
    .await;

    assert!(cluster.model().is_quiet());
}

#[tokio::test]
async fn an_end_by_another_attachment_of_the_client_ends_belief_first() {
    let (_cluster, node, client) = served().await;
    let session = session(&client, TTL).await;
    let attached = client.attach(session.handle(), Duration::MAX).await;
    let attached = attached.unwrap();

    let lease = session.acquire("db").send().await.unwrap();
    let (name, token, by) = (lease.name().clone(), lease.token(), attached.clone());
    node.script(is_release, Act::HoldRequest, 1);
    ends_first(&node, lease, async move { by.release(&name, token).await }).await;

    let lease = session.acquire("db").send().await.unwrap();
    node.script(is_close, Act::HoldRequest, 1);
    ends_first(&node, lease, attached.close()).await;
    assert!(!session.is_live());
}

#[tokio::test]
async fn an_end_by_another_process_is_noticed_within_a_round_of_keep_alives() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let holder = client(&[&node]).await;
    let session = session(&holder, Duration::from_secs(3)).await;
    let lease = session.acquire("db").send().await.unwrap();
    let kept = session.acquire("kept").send().await.unwrap();
    let (name, token) = (lease.name().clone(), lease.token());
    // A handle that was handed on is what makes others able to do it.
    let elsewhere = self::client(&[&node]).await;
    let attached = elsewhere.attach(session.handle(), Duration::MAX).await;

    attached.unwrap().release(&name, token).await.unwrap();

    let noticed = tokio::time::timeout(Duration::from_secs(2), lease.lost());
    let why = noticed.await.expect("believed beyond the next round");
    assert!(matches!(why, Loss::GrantEnded { .. }), "{why}");
    assert!(kept.is_valid() && session.is_live());
}
