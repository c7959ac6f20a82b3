//! Losing a lease: noticed, final, and never mixed up with a later grant.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ringfence_client::attach::STALE_HEADER;
use ringfence_client::{
    AcquireError, AttachError, Client, LeaseName, Loss, Secret, SessionHandle, SessionState,
};
use ringfence_proto::v1::client_frame::Body as Ask;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::support::{
    Act, Cluster, Node, SteppedClock, alone, client, eventually, is_acquire, is_keep_alive,
    is_release, served, session, within,
};

async fn stepped(node: &Node) -> (Arc<SteppedClock>, Client) {
    let clock = Arc::new(SteppedClock::new());
    let client = Client::builder()
        .endpoints([node.address()])
        .clock(Arc::clone(&clock) as _)
        .connect()
        .await
        .unwrap();
    (clock, client)
}

/// Waits until the loss of the grant with this token is acknowledged.
async fn acknowledged(cluster: &Cluster, token: u64) {
    let acknowledged = || cluster.model().acknowledged.contains(&token);
    eventually("the acknowledgement", acknowledged).await;
}

#[tokio::test]
async fn a_suspended_machine_wakes_up_without_its_leases() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let (clock, client) = stepped(&node).await;
    let session = session(&client, Duration::from_secs(15)).await;
    let lease = session.acquire("db").send().await.unwrap();
    let lost = lease.lost();

    clock.step(Duration::from_secs(3_600));

    assert!(!lease.is_valid());
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert_eq!(within("the loss", lost).await, Loss::WindowPassed);
    let state = session.state().borrow().clone();
    assert_eq!(
        state,
        SessionState::Lost {
            why: Loss::WindowPassed
        }
    );
}

#[tokio::test]
async fn a_late_acknowledgement_revives_nothing() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let (clock, client) = stepped(&node).await;
    let session = session(&client, Duration::from_secs(6)).await;
    let lease = session.acquire("db").send().await.unwrap();
    node.script(is_keep_alive, Act::HoldReply, usize::MAX);
    eventually("a keep-alive waits for its reply", || node.holds() > 0).await;

    clock.step(Duration::from_secs(6));
    node.let_go(false);
    node.behave();
    let other = self::session(&client, Duration::from_secs(6)).await;

    // A reply of the same stream has come by now, so the late ones have, too.
    assert!(other.is_live());
    assert!(!lease.is_valid());
    assert!(!session.is_live());
}

#[tokio::test]
async fn an_acquire_after_a_loss_releases_the_old_token_first() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let (clock, client) = stepped(&node).await;
    let before = session(&client, Duration::from_secs(15)).await;
    let old = before.acquire("db").send().await.unwrap();
    clock.step(Duration::from_secs(3_600));
    assert!(!old.is_valid());

    let after = session(&client, Duration::from_secs(15)).await;
    let new = within("the new grant", after.acquire("db").send())
        .await
        .unwrap();

    assert!(new.token() > old.token());
    assert!(new.is_valid());
    assert!(!old.is_valid());
    let releases = cluster.received(is_release);
    let [(_, Ask::Release(release))] = &releases[..] else {
        panic!("{releases:?}")
    };
    assert_eq!(release.token, old.token().get());
    assert_eq!(release.session.as_ref().unwrap().session, before.id().get());
}

#[tokio::test]
async fn a_revoked_grant_is_lost_and_its_loss_acknowledged() {
    let (cluster, _node, client) = served().await;
    let session = session(&client, Duration::from_millis(900)).await;
    let revoked = session.acquire("db").send().await.unwrap();
    let kept = session.acquire("other").send().await.unwrap();

    cluster.change(|model| model.revoke("db"));
    let loss = within("the loss", revoked.lost()).await;

    assert!(loss.to_string().contains("revoked by bob"), "{loss}");
    assert!(!revoked.is_valid());
    assert!(kept.is_valid());
    let token = revoked.token().get();
    acknowledged(&cluster, token).await;
    assert!(session.is_live());
}

#[tokio::test]
async fn a_loss_is_acknowledged_once_the_work_under_the_grant_has_ended() {
    let (cluster, _node, client) = served().await;
    let session = session(&client, Duration::from_millis(900)).await;
    let revoked = session.acquire("db").send().await.unwrap();
    let (first, second) = (revoked.working(), revoked.working());

    cluster.change(|model| model.revoke("db"));
    within("the loss", revoked.lost()).await;
    let until = revoked.valid_until();
    drop(first);
    // Longer than two keep-alives.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(cluster.model().acknowledged.is_empty(), "work goes on");
    // The cluster waits for one TTL from the revoke, not from the newest keep-alive.
    assert!(session.valid_until() > until, "the session is kept alive");
    assert_eq!(revoked.valid_until(), until);

    drop(second);
    let token = revoked.token().get();
    acknowledged(&cluster, token).await;
    assert!(session.is_live());
}

#[tokio::test]
async fn a_grant_listed_as_lost_before_its_answer_is_never_held() {
    let (cluster, node, client) = served().await;
    let session = session(&client, Duration::from_millis(900)).await;
    node.script(is_acquire, Act::HoldReply, 1);
    let acquiring = tokio::spawn(session.acquire("db").send());
    eventually("the grant", || node.holds() == 1).await;

    cluster.change(|model| model.revoke("db"));
    let rounds = cluster.count(is_keep_alive);
    eventually("the loss is listed", || {
        cluster.count(is_keep_alive) > rounds + 1
    })
    .await;
    node.let_go(false);

    let ended = within("the answer", acquiring).await.unwrap().unwrap_err();
    assert!(
        matches!(ended, AcquireError::Ended(Loss::GrantEnded { .. })),
        "{ended:?}"
    );
    acknowledged(&cluster, 1).await;
}

#[tokio::test]
async fn a_loss_is_acknowledged_by_whoever_believed_and_nobody_else() {
    let cluster = Cluster::new();
    let (node, beside) = (cluster.node().await, cluster.node().await);
    let holder = client(&[&node]).await;
    let session = session(&holder, Duration::from_secs(3)).await;
    let lease = session.acquire("db").send().await.unwrap();
    let token = lease.token().get();
    let elsewhere = client(&[&beside]).await;
    let attached = elsewhere
        .attach(session.handle(), Duration::MAX)
        .await
        .unwrap();
    node.script(is_keep_alive, Act::HoldRequest, usize::MAX);

    cluster.change(|model| model.revoke("db"));
    let from_elsewhere = || {
        let received = cluster.received(is_keep_alive);
        let theirs = received.iter().filter(|(at, _)| *at == beside.address());
        theirs.count()
    };
    let rounds = from_elsewhere();
    eventually("it is listed elsewhere", || from_elsewhere() > rounds + 1).await;

    assert!(attached.is_live());
    let acknowledged = cluster.model().acknowledged.contains(&token);
    assert!(!acknowledged, "the next holder would be let in");
    node.behave();
    node.let_go(false);
    within("the loss", lease.lost()).await;
}

#[tokio::test]
async fn each_attachment_of_a_session_hears_of_losses() {
    let (cluster, node, client) = served().await;
    let session = session(&client, Duration::from_millis(900)).await;
    let attached = client
        .attach(session.handle(), Duration::MAX)
        .await
        .unwrap();
    let lease = attached.acquire("db").send().await.unwrap();
    let token = lease.token().get();
    // Both are due in the same message.
    node.break_streams();

    cluster.change(|model| model.revoke("db"));

    let loss = within("the loss", lease.lost()).await;
    assert!(loss.to_string().contains("revoked by bob"), "{loss}");
    acknowledged(&cluster, token).await;
    assert!(session.is_live() && attached.is_live());
}

#[tokio::test]
async fn a_session_that_the_cluster_has_ended_is_lost() {
    let (cluster, _node, client) = served().await;
    let session = session(&client, Duration::from_millis(900)).await;
    let lease = session.acquire("db").send().await.unwrap();

    cluster.change(|model| model.end_session(session.id().get()));

    let loss = within("the loss", lease.lost()).await;
    assert_eq!(loss, Loss::SessionEnded { cause: None });
    let refused = session.acquire("db").send().await.unwrap_err();
    assert!(
        matches!(refused, AcquireError::SessionLost(_)),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_guards_refusal_is_final() {
    let (cluster, _node, session) = alone().await;
    let old = session.acquire("db").send().await.unwrap();

    old.report_stale();

    assert_eq!(old.loss(), Some(Loss::Reported));
    let new = within("the new grant", session.acquire("db").send())
        .await
        .unwrap();
    assert!(new.token() > old.token());
    assert!(!old.is_valid());
    drop(old);
    assert!(new.is_valid());
    assert_eq!(cluster.distinct(is_release), 1);
}

#[tokio::test]
async fn a_lease_that_a_guard_refused_is_released() {
    let (cluster, _node, session) = alone().await;
    let reported = session.acquire("db").send().await.unwrap();
    reported.report_stale();
    // No client acquires it again, and the session lives on: it would be held for ever.
    eventually("the release", || cluster.model().is_quiet()).await;
    drop(reported);

    let lease = session.acquire("db").send().await.unwrap();
    let mut service = lease.attach().layer(Stale(lease.fence().to_string()));
    service.call(http::Request::new(())).await.unwrap();
    assert_eq!(lease.loss(), Some(Loss::Reported));
    drop(lease);
    eventually("the release", || cluster.model().is_quiet()).await;
    assert!(session.is_live());
    assert_eq!(cluster.count(is_release), 2);
}

/// A service whose guard refuses this fence.
struct Stale(String);

impl tower_service::Service<http::Request<()>> for Stale {
    type Response = http::Response<()>;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<()>) -> Self::Future {
        let answer = http::Response::builder().header(STALE_HEADER, self.0.as_str());
        std::future::ready(Ok(answer.body(()).unwrap()))
    }
}

#[tokio::test]
async fn work_is_dropped_at_the_loss_and_not_polled_after_it() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let clock = Arc::new(SteppedClock::asleep());
    let client = Client::builder()
        .endpoints([node.address()])
        .clock(Arc::clone(&clock) as _)
        .connect()
        .await
        .unwrap();
    let session = session(&client, Duration::from_secs(15)).await;
    let lease = session.acquire("db").send().await.unwrap();
    assert_eq!(lease.run(async { 7 }).await, Ok(7));

    clock.step(Duration::from_secs(15));
    let result = lease.run(async { panic!("polled after the loss") }).await;

    assert_eq!(result, Err::<(), _>(Loss::WindowPassed));
}

#[tokio::test]
async fn a_resumed_session_ends_what_it_did_not_begin() {
    let (cluster, node, session) = alone().await;
    let name = LeaseName::parse("db").unwrap();
    let lease = session.acquire("db").send().await.unwrap();
    let token = lease.forget();
    let handle: SessionHandle = session.detach().to_string().parse().unwrap();

    let resumed = client(&[&node])
        .await
        .attach(handle, Duration::MAX)
        .await
        .unwrap();
    assert_eq!(resumed.ttl(), Duration::from_secs(60));
    within("the release", resumed.release(&name, token))
        .await
        .unwrap();

    assert!(cluster.model().is_quiet());
    drop(resumed);
    assert_eq!(cluster.count(|ask| matches!(ask, Ask::Close(_))), 0);
}

#[tokio::test]
async fn a_wrong_secret_resumes_nothing() {
    let (_cluster, node, session) = alone().await;
    let mut handle = session.handle();
    handle.secret = Secret::new([0; 16]);

    let refused = client(&[&node])
        .await
        .attach(handle, Duration::MAX)
        .await
        .unwrap_err();

    assert!(
        matches!(refused, AttachError::Lost(Loss::WrongSecret)),
        "{refused:?}"
    );
}
