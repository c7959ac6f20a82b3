//! Dropping an acquire at any point leaves no orphan grant and no ghost waiter.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use ringfence_client::{AcquireError, HeldLease, Session};
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_proto::v1::client_frame::Body as Ask;

use crate::support::{
    Act, Cluster, alone, client, eventually, is_acquire, is_release, served, served_within,
    session, unavailable, within,
};

const WAIT: Duration = Duration::from_secs(60);

fn is_cancel(ask: &Ask) -> bool {
    matches!(ask, Ask::Cancel(_))
}

/// Begins an acquire and leaves it to the client's thread; dropping it is left to the caller.
fn begin(session: &Session) -> impl Future<Output = Result<HeldLease, AcquireError>> + use<> {
    let mut acquire = Box::pin(session.acquire("db").wait(WAIT).send());
    let mut context = Context::from_waker(Waker::noop());
    assert!(acquire.as_mut().poll(&mut context).is_pending());
    acquire
}

#[tokio::test]
async fn never_polled_means_never_asked() {
    let (cluster, _node, session) = alone().await;

    drop(session.acquire("db").send());
    within("another", session.acquire("other").send())
        .await
        .unwrap()
        .forget();

    assert_eq!(cluster.distinct(is_acquire), 1);
}

#[tokio::test]
async fn dropped_before_the_request_is_carried_out_it_is_voided() {
    let (cluster, node, session) = alone().await;
    node.script(is_acquire, Act::HoldRequest, 1);
    let acquire = begin(&session);
    eventually("the request", || node.holds() == 1).await;

    drop(acquire);
    eventually("the cancel", || cluster.count(is_cancel) == 1).await;
    // The request comes after its cancel.
    node.let_go(false);

    let next = within("a later grant", session.acquire("db").send())
        .await
        .unwrap();
    assert_eq!(cluster.model().grants, 1);
    assert_eq!(next.token().get(), 1);
}

#[tokio::test]
async fn dropped_while_it_waits_it_leaves_the_queue() {
    let (cluster, node, session) = alone().await;
    let holder = self::session(&client(&[&node]).await, WAIT).await;
    let held = holder.acquire("db").send().await.unwrap();
    let acquire = begin(&session);
    eventually("the waiter", || !cluster.model().queue.is_empty()).await;

    drop(acquire);

    eventually("an empty queue", || cluster.model().queue.is_empty()).await;
    held.release().await.unwrap();
    assert!(cluster.model().is_quiet());
}

#[tokio::test]
async fn dropped_while_its_grant_is_under_way_it_is_released() {
    let (cluster, node, session) = alone().await;
    node.script(is_acquire, Act::HoldReply, 1);
    let acquire = begin(&session);
    eventually("the grant", || node.holds() == 1).await;

    drop(acquire);
    eventually("the release", || cluster.count(is_release) == 1).await;
    node.let_go(false);

    eventually("nothing left", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn dropped_when_its_grant_has_come_it_is_released() {
    let (cluster, _node, session) = alone().await;
    let acquire = begin(&session);
    // Another request on the same stream: when it is answered, the grant has come, too.
    within("a later answer", session.acquire("other").send())
        .await
        .unwrap()
        .forget();
    assert_eq!(cluster.model().held.len(), 2);

    drop(acquire);

    eventually("the release", || !cluster.model().held.contains_key("db")).await;
}

#[tokio::test]
async fn a_cancel_is_repeated_until_it_is_answered() {
    let (cluster, node, session) = alone().await;
    node.script(is_acquire, Act::HoldReply, 1);
    node.script(is_cancel, unavailable(None), 2);
    node.script(is_cancel, Act::BreakBefore, 2);
    node.script(is_cancel, Act::BreakAfter, 1);
    let acquire = begin(&session);
    eventually("the grant", || node.holds() == 1).await;

    drop(acquire);

    eventually("nothing left", || cluster.model().is_quiet()).await;
    let cancels = cluster.received(is_cancel);
    assert_eq!(cancels.len(), 6);
    assert!(
        cancels.windows(2).all(|pair| pair[0].1 == pair[1].1),
        "{cancels:?}"
    );
}

#[tokio::test]
async fn a_cancel_goes_on_until_its_credential_is_accepted() {
    for reason in [Reason::Unauthenticated, Reason::PermissionDenied] {
        let (cluster, node, session) = alone().await;
        node.script(is_acquire, Act::HoldReply, 1);
        let refusal = Refusal::new(reason, "no credential of today");
        node.script(is_cancel, Act::Refuse(refusal.clone()), 2);
        node.script(is_release, Act::Refuse(refusal), 2);
        let acquire = begin(&session);
        eventually("the grant", || node.holds() == 1).await;

        drop(acquire);

        eventually("nothing left", || cluster.model().is_quiet()).await;
        assert_eq!(cluster.count(is_cancel), 3);
        assert_eq!(cluster.count(is_release), 3);
    }
}

/// More than a session has request numbers for at once, while the cluster is away for longer than
/// a request is waited for.
#[tokio::test]
async fn nothing_that_was_dropped_is_forgotten_for_want_of_numbers() {
    let (cluster, node, client) = served_within(Duration::from_millis(200)).await;
    let session = session(&client, WAIT).await;
    let mut leases = Vec::new();
    for number in 0..300 {
        let lease = session.acquire(format!("db/{number}")).send().await;
        leases.push(lease.unwrap());
    }
    node.script(is_release, unavailable(None), usize::MAX);

    drop(leases);
    tokio::time::sleep(Duration::from_millis(500)).await;
    node.behave();

    eventually("all are released", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn dropped_without_a_connection_it_is_cancelled_on_the_next_one() {
    let (cluster, node, client) = served().await;
    let session = session(&client, WAIT).await;
    node.script(is_acquire, Act::BreakAfter, 1);
    let address = node.address();
    let acquire = begin(&session);
    eventually("the grant", || cluster.model().grants == 1).await;
    drop(node);
    eventually("the client notices", || client.endpoint().is_none()).await;

    drop(acquire);
    let _node = cluster.node_at(&address, 7).await;

    eventually("nothing left", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn dropped_while_an_earlier_release_is_awaited_it_asks_nothing() {
    let (cluster, node, session) = alone().await;
    node.script(is_release, Act::HoldRequest, 1);
    drop(session.acquire("db").send().await.unwrap());
    eventually("the release", || node.holds() == 1).await;

    drop(begin(&session));
    node.let_go(false);

    eventually("nothing left", || cluster.model().is_quiet()).await;
    within("a later grant", session.acquire("db").send())
        .await
        .unwrap()
        .forget();
    assert_eq!(cluster.count(is_acquire), 2);
}

#[tokio::test]
async fn dropped_after_any_number_of_polls_nothing_is_left() {
    let (cluster, node, session) = alone().await;
    let holder = self::session(&client(&[&node]).await, WAIT).await;
    for polls in 0..60 {
        // In turn free, held, and becoming free meanwhile.
        let held = match polls % 3 {
            0 => None,
            _ => Some(
                within("the holder", holder.acquire("db").send())
                    .await
                    .unwrap(),
            ),
        };
        {
            let mut acquire = pin!(session.acquire("db").wait(WAIT).send());
            let mut context = Context::from_waker(Waker::noop());
            for poll in 0..polls {
                if acquire.as_mut().poll(&mut context).is_ready() {
                    break;
                }
                if poll == polls / 2 && polls % 3 == 2 {
                    cluster.change(|model| model.end_held_by_operator("db"));
                }
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        }
        drop(held);
        eventually(&format!("nothing left after {polls} polls"), || {
            cluster.model().is_quiet()
        })
        .await;
    }
    assert!(session.is_live());
}

#[tokio::test]
async fn a_deadline_that_passes_cancels_too() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let client = ringfence_client::Client::builder()
        .endpoints([node.address()])
        .request_timeout(Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    let session = session(&client, WAIT).await;
    node.script(is_acquire, Act::Swallow, 1);

    let unknown = session.acquire("db").send().await.unwrap_err();

    assert!(matches!(unknown, AcquireError::Call(_)), "{unknown:?}");
    eventually("nothing left", || cluster.model().is_quiet()).await;
    assert_eq!(cluster.model().grants, 1);
}

#[tokio::test]
async fn two_tasks_of_one_session_are_not_both_holders() {
    let (cluster, _node, session) = alone().await;

    let (one, other) = tokio::join!(session.acquire("db").send(), session.acquire("db").send());

    let held = [&one, &other]
        .iter()
        .filter(|result| result.is_ok())
        .count();
    assert_eq!(held, 1);
    let refused = one.err().or(other.err()).unwrap();
    let AcquireError::Held(holder) = refused else {
        panic!("{refused:?}")
    };
    assert!(holder.mine);
    assert_eq!(cluster.model().grants, 1);
}
