//! A request is repeated under its own number until its outcome is known.

use std::collections::BTreeSet;
use std::time::Duration;

use ringfence_client::{
    AcquireError, CallError, LeaseName, OpenError, ReleaseError, SessionOptions, unstable,
};
use ringfence_proto::Refusal;
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{ListSessionsRequest, Reason};

use crate::support::{
    Act, Cluster, alone, client, eventually, is_acquire, is_open, is_release, served_within,
    session, unavailable, within,
};

fn number_of(ask: &Ask) -> u64 {
    match ask {
        Ask::Acquire(ask) => ask.number,
        Ask::Release(ask) => ask.number,
        _ => 0,
    }
}

#[tokio::test]
async fn a_broken_stream_repeats_the_request_under_its_number() {
    for act in [Act::BreakAfter, Act::BreakBefore] {
        let (cluster, node, session) = alone().await;
        node.script(is_acquire, act.clone(), 2);

        let lease = within("the grant", session.acquire("db").send())
            .await
            .unwrap();

        let tries = cluster.received(is_acquire);
        assert_eq!(tries.len(), 3, "{act:?}");
        assert!(
            tries.iter().all(|(_, ask)| number_of(ask) == 1),
            "{act:?}: {tries:?}"
        );
        assert_eq!(cluster.model().grants, 1, "{act:?}");
        assert_eq!(lease.fence().to_string(), "db#1");
    }
}

#[tokio::test]
async fn a_refusal_of_the_last_try_says_nothing_of_one_that_was_sent_before() {
    for refusal in [
        Refusal::new(Reason::Limit, "too many answers are unconfirmed"),
        Refusal::new(Reason::PermissionDenied, "this principal is banned"),
        Refusal::new(Reason::Unauthenticated, "the token was revoked"),
    ] {
        let (cluster, node, session) = alone().await;
        // The first try is in the log, and nothing is heard of it.
        node.script(is_acquire, Act::BreakAfter, 1);
        node.script(is_acquire, Act::Refuse(refusal.clone()), 1);

        let error = session.acquire("db").send().await.unwrap_err();

        let unknown = matches!(error, AcquireError::Call(CallError::Unknown { .. }));
        assert!(unknown, "{refusal}: {error:?}");
        eventually("what it brought is taken back", || {
            cluster.model().is_quiet()
        })
        .await;
    }
}

#[tokio::test]
async fn unavailable_is_not_done_and_is_tried_again() {
    let (cluster, node, session) = alone().await;
    node.script(is_acquire, unavailable(None), 3);

    let lease = within("the grant", session.acquire("db").send())
        .await
        .unwrap();

    assert_eq!(cluster.count(is_acquire), 4);
    assert_eq!(cluster.model().grants, 1);
    assert!(lease.is_valid());
}

#[tokio::test]
async fn a_reply_that_does_not_fit_leaves_the_outcome_open() {
    let (cluster, node, session) = alone().await;
    node.script(is_acquire, Act::Garbage, 1);

    let lease = within("the grant", session.acquire("db").send())
        .await
        .unwrap();

    assert_eq!(cluster.count(is_acquire), 2);
    assert_eq!(lease.token().get(), 1);
}

#[tokio::test]
async fn a_lost_reply_of_a_release_releases_once() {
    let (cluster, node, session) = alone().await;
    let lease = session.acquire("db").send().await.unwrap();
    node.script(is_release, Act::BreakAfter, 1);

    within("the release", lease.release()).await.unwrap();

    let tries = cluster.received(is_release);
    assert_eq!(tries.len(), 2);
    assert_eq!(number_of(&tries[0].1), number_of(&tries[1].1));
    assert!(cluster.model().is_quiet());
}

#[tokio::test]
async fn numbers_name_the_lowest_that_is_unanswered() {
    let (cluster, _node, session) = alone().await;
    for round in 0..3 {
        let lease = session
            .acquire(format!("name-{round}"))
            .send()
            .await
            .unwrap();
        lease.release().await.unwrap();
    }

    for (_, ask) in cluster.received(|ask| is_acquire(ask) || is_release(ask)) {
        let (number, lowest) = match ask {
            Ask::Acquire(ask) => (ask.number, ask.lowest),
            Ask::Release(ask) => (ask.number, ask.lowest),
            _ => continue,
        };
        assert_eq!(number, lowest, "each was answered before the next was sent");
    }
}

#[tokio::test]
async fn a_refusal_is_an_answer() {
    let (cluster, _node, mine) = alone().await;
    let node = cluster.node().await;
    let other = session(&client(&[&node]).await, Duration::from_secs(60)).await;
    let lease = mine.acquire("db").send().await.unwrap();

    let refused = other.acquire("db").send().await.unwrap_err();

    let AcquireError::Held(holder) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(holder.session, Some(mine.id()));
    assert_eq!(holder.token, Some(lease.token()));
    assert!(!holder.mine);
    assert_eq!(cluster.count(is_acquire), 2);
}

#[tokio::test]
async fn what_was_never_sent_is_unavailable_and_what_was_is_unknown() {
    let (_cluster, node, client) = served_within(Duration::from_millis(300)).await;
    let name = LeaseName::parse("db").unwrap();
    node.script(|ask| matches!(ask, Ask::Get(_)), Act::Swallow, 1);

    let unknown = client.look_up(&name).await.unwrap_err();
    drop(node);
    eventually("the client notices", || client.endpoint().is_none()).await;
    let unavailable = client.look_up(&name).await.unwrap_err();

    assert!(matches!(unknown, CallError::Unknown { .. }), "{unknown:?}");
    assert!(
        matches!(unavailable, CallError::Unavailable { .. }),
        "{unavailable:?}"
    );
}

#[tokio::test]
async fn once_open_an_outcome_stays_open() {
    let (cluster, node, client) = served_within(Duration::from_millis(400)).await;
    let session = session(&client, Duration::from_secs(60)).await;
    let lease = session.acquire("db").send().await.unwrap();
    // The first try was done; that later ones were not says nothing about it.
    node.script(is_release, Act::BreakAfter, 1);
    let away = Refusal::unavailable("no node leads", None, Duration::ZERO);
    node.script(is_release, Act::Refuse(away), 1_000);

    let error = lease.release().await.unwrap_err();

    let unknown = matches!(error, ReleaseError::Call(CallError::Unknown { .. }));
    assert!(unknown, "{error:?}");
    // The last try was not carried out, and to say so here would contradict what is said.
    let said = error.to_string();
    assert!(said.contains("the outcome is unknown"), "{said}");
    assert!(!said.contains("not carried out"), "{said}");
    assert!(cluster.model().is_quiet());
}

#[tokio::test]
async fn a_unary_status_without_our_details_is_unknown() {
    let (_cluster, _node, client) = served_within(Duration::from_millis(200)).await;

    let list = unstable::unary(&client, |channel| async move {
        SessionsClient::new(channel)
            .list(ListSessionsRequest::default())
            .await
    });

    let error = list.await.unwrap_err();
    assert!(matches!(error, CallError::Unknown { .. }), "{error:?}");
}

fn worker() -> SessionOptions {
    SessionOptions {
        ttl: Duration::from_secs(60),
        identity: "worker".into(),
    }
}

/// The first try had opened the session, no client learned of it, and its TTL has passed since.
#[tokio::test]
async fn an_open_that_came_true_unheard_and_ended_is_asked_for_under_another_id() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let ended = Refusal::new(
        Reason::OpenIdUsed,
        "the session opened with this id has ended",
    );
    node.script(is_open, Act::Refuse(ended), 2);

    let client = client(&[&node]).await;
    let session = within("the session", client.open_session(worker())).await;
    drop(session.unwrap());

    let ids: BTreeSet<_> = cluster
        .received(is_open)
        .into_iter()
        .filter_map(|(_, ask)| match ask {
            Ask::Open(open) => Some(open.id),
            _ => None,
        })
        .collect();
    assert_eq!(ids.len(), 3, "each try has an id of its own");
}

/// Ids are random: one that is used again and again is no accident.
#[tokio::test]
async fn an_open_that_is_refused_for_ever_is_told() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let used = Refusal::new(
        Reason::OpenIdUsed,
        "the session opened with this id has ended",
    );
    node.script(is_open, Act::Refuse(used), usize::MAX);

    let client = client(&[&node]).await;
    let refused = within("the refusal", client.open_session(worker())).await;
    let Err(OpenError::Call(CallError::Refused(refusal))) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refusal.reason.as_str(), "OPEN_ID_USED");
}
