//! Unary calls to a cluster of one.

use std::time::Duration;

use ringfence_proto::v1;
use ringfence_proto::v1::check_response::Verdict;
use ringfence_proto::v1::end_cause::Kind;
use tonic::{Code, Request};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};

use crate::api::{Api, acquire_request, open_request, refusal};
use crate::process::{PATIENCE, single};

#[tokio::test]
async fn a_lease_lives_from_its_grant_to_its_release() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;

    let grant = api.acquire(&alice, 1, "jobs/one").await.unwrap();
    assert_eq!((grant.token, grant.identity.as_str()), (1, "alice"));
    let lease = api.get("jobs/one").await.unwrap();
    assert_eq!(lease.holder, Some(grant.clone()));
    assert_eq!(api.check("jobs/one", 1).await.verdict(), Verdict::Current);
    assert_eq!(api.check("jobs/one", 2).await.verdict(), Verdict::Unknown);

    api.release(&alice, 2, &grant).await.unwrap();
    assert_eq!(api.check("jobs/one", 1).await.verdict(), Verdict::Ended);
    let again = api.acquire(&alice, 3, "jobs/one").await.unwrap();
    assert_eq!(again.token, 2);
    let superseded = api.check("jobs/one", 1).await;
    assert_eq!(
        (superseded.verdict(), superseded.newest),
        (Verdict::Superseded, 2)
    );
}

#[tokio::test]
async fn one_entry_opens_a_session_and_grants_a_lease() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let request = |name: &str| v1::AcquireRequest {
        open: Some(open_request("alice")),
        name: name.to_owned(),
        ..Default::default()
    };

    let answer = api
        .leases
        .acquire(request("db"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        answer.grant.unwrap().session,
        answer.opened.unwrap().session
    );

    // Refused, but the session is open all the same, and its number is reported.
    let refused = api.leases.acquire(request("db")).await.unwrap_err();
    let session: u64 = refusal(&refused).metadata["session"].parse().unwrap();
    let asked = v1::GetSessionRequest {
        session,
        read: None,
    };
    let opened = api
        .sessions
        .get(asked)
        .await
        .unwrap()
        .into_inner()
        .session
        .unwrap();
    assert_eq!(opened.identity, "alice");
}

#[tokio::test]
async fn who_waits_is_answered_by_the_release_before() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let (alice, bob) = (api.open("alice").await, api.open("bob").await);
    let grant = api.acquire(&alice, 1, "db").await.unwrap();

    let mut leases = api.leases.clone();
    let request = v1::AcquireRequest {
        wait_ms: Some(60_000),
        ..acquire_request(&bob, 1, "db")
    };
    let waiting = tokio::spawn(async move { leases.acquire(request).await });
    while api.get("db").await.unwrap().waiters == 0 {}
    api.release(&alice, 2, &grant).await.unwrap();

    let answer = tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(answer.into_inner().grant.unwrap().token, grant.token + 1);
}

#[tokio::test]
async fn a_deadline_ends_the_call_and_not_the_wait() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let (alice, bob) = (api.open("alice").await, api.open("bob").await);
    let grant = api.acquire(&alice, 1, "db").await.unwrap();
    let request = v1::AcquireRequest {
        wait_ms: Some(60_000),
        ..acquire_request(&bob, 1, "db")
    };

    let mut hasty = Request::new(request.clone());
    hasty.set_timeout(Duration::from_secs(1));
    let unknown = api.leases.acquire(hasty).await.unwrap_err();
    assert_eq!(unknown.code(), Code::DeadlineExceeded);
    assert_eq!(refusal(&unknown).reason, v1::Reason::OutcomeUnknown);
    assert_eq!(api.get("db").await.unwrap().waiters, 1);

    api.release(&alice, 2, &grant).await.unwrap();
    let repeated = api.leases.acquire(request).await.unwrap().into_inner();
    assert_eq!(repeated.grant.unwrap().token, grant.token + 1);
}

#[tokio::test]
async fn a_wait_that_is_over_says_so() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let (alice, bob) = (api.open("alice").await, api.open("bob").await);
    api.acquire(&alice, 1, "db").await.unwrap();

    let request = v1::AcquireRequest {
        wait_ms: Some(50),
        ..acquire_request(&bob, 1, "db")
    };
    let over = api.leases.acquire(request).await.unwrap_err();

    assert_eq!(refusal(&over).reason, v1::Reason::WaitTimeout);
}

#[tokio::test]
async fn all_pages_of_a_list_stand_at_one_index() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    for (number, name) in (1..).zip(["a/1", "a/2", "a/3", "b"]) {
        api.acquire(&alice, number, name).await.unwrap();
    }
    let first = v1::ListRequest {
        prefix: "a/".to_owned(),
        page_size: 2,
        ..Default::default()
    };
    let page = api.leases.list(first.clone()).await.unwrap().into_inner();
    api.acquire(&alice, 5, "a/4").await.unwrap();

    let next = v1::ListRequest {
        page_token: page.next_page_token.clone(),
        ..first.clone()
    };
    let last = api.leases.list(next).await.unwrap().into_inner();

    let names = |page: &v1::ListResponse| {
        page.leases
            .iter()
            .map(|lease| lease.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&page), names(&last)),
        (vec!["a/1".into(), "a/2".into()], vec!["a/3".into()])
    );
    assert_eq!(page.at.unwrap().index, last.at.unwrap().index);
    assert_eq!(last.next_page_token, "");

    let foreign = v1::ListRequest {
        page_token: "9.1.1.a/2".to_owned(),
        ..first
    };
    let gone = api.leases.list(foreign).await.unwrap_err();
    assert_eq!(refusal(&gone).reason, v1::Reason::Compacted);
}

#[tokio::test]
async fn an_operators_revoke_is_in_the_history_with_who_and_why() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let grant = api.acquire(&alice, 1, "db").await.unwrap();
    let revoke = v1::RevokeRequest {
        name: "db".to_owned(),
        token: grant.token,
        now: true,
        reason: "stuck".to_owned(),
        operator: "olga".to_owned(),
    };
    api.leases.revoke(revoke).await.unwrap();

    let asked = v1::HistoryRequest {
        token: grant.token,
        ..Default::default()
    };
    let found = async {
        loop {
            let answer = api
                .leases
                .history(asked.clone())
                .await
                .unwrap()
                .into_inner();
            if let Some(cause) = answer
                .records
                .first()
                .and_then(|record| record.cause.clone())
            {
                return (answer, cause);
            }
        }
    };
    let (answer, cause) = tokio::time::timeout(PATIENCE, found).await.unwrap();

    assert_eq!(cause.kind(), Kind::Revoked);
    assert_eq!(
        (cause.operator.as_str(), cause.reason.as_str()),
        ("olga", "stuck")
    );
    assert_eq!(answer.records[0].grant.as_ref().unwrap().identity, "alice");
    assert!(!answer.covered.is_empty());
}

#[tokio::test]
async fn sessions_are_listed_kept_alive_and_closed() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let bob = api.open("bob").await;
    let wrong = v1::SessionHandle {
        secret: vec![0; 16].into(),
        ..bob.clone()
    };
    let request = v1::KeepAliveRequest {
        id: 9,
        sessions: vec![alice.clone(), wrong],
        ..Default::default()
    };

    let mut answers = api
        .sessions
        .keep_alive(tokio_stream::iter([request]))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    assert_eq!((answer.id, answer.ended.len()), (9, 1));
    assert_eq!(answer.ended[0].session, bob.session);
    assert_eq!(answer.ended[0].reason(), v1::Reason::WrongSecret);

    let one = v1::ListSessionsRequest {
        page_size: 1,
        ..Default::default()
    };
    let page = api.sessions.list(one).await.unwrap().into_inner();
    assert_eq!((page.sessions[0].session, page.more), (alice.session, true));

    let close = v1::CloseRequest {
        session: Some(alice.clone()),
    };
    api.sessions.close(close.clone()).await.unwrap();
    let again = api.sessions.close(close).await.unwrap().into_inner();
    assert_eq!(again.cause.unwrap().kind(), v1::session_end::Kind::Closed);
}

/// The library of that service would take four times as much.
#[tokio::test]
async fn a_question_about_health_is_no_longer_than_any_other() {
    let (node, _dir) = single().await;
    let channel = tonic::transport::Channel::from_shared(node.url()).unwrap();
    let mut health = HealthClient::new(channel.connect().await.unwrap());
    let service = "x".repeat(2 << 20);
    let refused = health.check(HealthCheckRequest { service }).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("message_bytes"), "{refused}");
}

#[tokio::test]
async fn status_health_and_figures_are_told() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    api.acquire(&alice, 1, "db").await.unwrap();

    let status = api.status().await;
    assert_eq!(
        (status.role.as_str(), status.name.as_str()),
        ("leader", "n1")
    );
    assert_eq!(status.cluster_id.len(), 16);
    assert_eq!(
        (status.last_token, status.sessions, status.token_floor_set),
        (1, 1, true)
    );

    let channel = tonic::transport::Channel::from_shared(node.url()).unwrap();
    let mut health = HealthClient::new(channel.connect().await.unwrap());
    for service in ["", "ringfence.v1.Leases", "ringfence.v1.Connection"] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let serving = async {
            loop {
                let answer = health.check(request.clone()).await.unwrap().into_inner();
                if answer.status() == ServingStatus::Serving {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, serving).await.unwrap();
    }

    assert_eq!(node.http("/livez").unwrap().0, 200);
    let (_, figures) = node.http("/metrics").unwrap();
    for line in [
        "ringfence_sessions 1",
        "ringfence_leases_held 1",
        "ringfence_lease_token 1",
        "ringfence_requests_total{call=\"acquire\",result=\"OK\"} 1",
        "ringfence_lease_transitions_total{cause=\"granted\"} 1",
        "ringfence_raft_is_leader 1",
    ] {
        assert!(
            figures.lines().any(|shown| shown == line),
            "{line} is not in:\n{figures}"
        );
    }
}
