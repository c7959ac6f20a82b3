//! Grants that go to another: by their holder's wish, or by an operator's.

use ringfence_proto::v1::check_response::Verdict;
use ringfence_proto::v1::watch_event::Kind;
use ringfence_proto::v1::{self, Reason, end_cause};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::api::{Api, acquire_request, refusal};
use crate::process::{PATIENCE, single};

type Waiting = JoinHandle<Result<v1::Grant, Status>>;

/// Events of a lease as they come.
struct Watcher {
    stream: Streaming<v1::WatchResponse>,
    events: std::collections::VecDeque<Kind>,
}

impl Watcher {
    async fn of(api: &mut Api, name: &str) -> Self {
        let request = v1::WatchRequest {
            prefix: name.to_owned(),
            from: None,
        };
        let mut stream = api.leases.watch(request).await.unwrap().into_inner();
        // The present, from which everything goes on.
        stream.message().await.unwrap().unwrap();
        Self {
            stream,
            events: Default::default(),
        }
    }

    async fn next(&mut self) -> Kind {
        while self.events.is_empty() {
            let message = timeout(PATIENCE, self.stream.message()).await;
            let message = message.expect("an event in time").unwrap().unwrap();
            let kinds = message.events.into_iter().filter_map(|event| event.kind);
            self.events.extend(kinds);
        }
        self.events.pop_front().unwrap()
    }

    /// The next event, which is an end: of this token, for this cause.
    async fn ended(&mut self, token: u64, kind: end_cause::Kind) -> v1::EndCause {
        let Kind::Ended(ended) = self.next().await else {
            panic!("not an end")
        };
        let cause = ended.cause.unwrap();
        assert_eq!((ended.token, cause.kind()), (token, kind));
        cause
    }

    /// The next event, which is a grant.
    async fn granted(&mut self) -> v1::Grant {
        match self.next().await {
            Kind::Granted(grant) => grant,
            other => panic!("{other:?}"),
        }
    }
}

/// Stands in the queue of `db`, behind those that stand there.
async fn wait(api: &mut Api, session: &v1::SessionHandle, before: u64) -> Waiting {
    let request = v1::AcquireRequest {
        wait_ms: Some(60_000),
        ..acquire_request(session, 1, "db")
    };
    let mut leases = api.leases.clone();
    let waiting = tokio::spawn(async move {
        let answer = leases.acquire(request).await?;
        Ok(answer.into_inner().grant.unwrap())
    });
    while u64::from(api.get("db").await.unwrap().waiters) <= before {}
    waiting
}

async fn served(waiting: Waiting) -> v1::Grant {
    let done = timeout(PATIENCE, waiting).await.expect("it is served");
    done.unwrap().unwrap()
}

fn transfer(session: &v1::SessionHandle, number: u64, token: u64, to: u64) -> v1::TransferRequest {
    v1::TransferRequest {
        session: Some(session.clone()),
        number,
        name: "db".to_owned(),
        token,
        to_session: to,
        ..Default::default()
    }
}

async fn revoke(api: &mut Api, token: u64, now: bool) -> Result<(), Status> {
    let request = v1::RevokeRequest {
        name: "db".to_owned(),
        token,
        now,
        reason: "stuck".to_owned(),
        operator: "olga".to_owned(),
    };
    api.leases.revoke(request).await.map(|_| ())
}

#[tokio::test]
async fn a_transfer_gives_the_chosen_waiter_a_new_token_and_the_old_one_is_stale() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let (alice, bob, carol) = (
        api.open("alice").await,
        api.open("bob").await,
        api.open("carol").await,
    );
    let grant = api.acquire(&alice, 1, "db").await.unwrap();
    let refused = api
        .leases
        .transfer(transfer(&alice, 2, grant.token, 0))
        .await;
    assert_eq!(refusal(&refused.unwrap_err()).reason, Reason::NotWaiting);
    let first = wait(&mut api, &bob, 0).await;
    let second = wait(&mut api, &carol, 1).await;
    let mut watcher = Watcher::of(&mut api, "db").await;

    let chosen = transfer(&alice, 3, grant.token, carol.session);
    let handed = api.leases.transfer(chosen.clone()).await.unwrap();
    let handed = handed.into_inner();
    assert_eq!(handed.to_session, carol.session);
    assert!(handed.token > grant.token);
    assert_eq!(served(second).await.token, handed.token);
    let cause = watcher
        .ended(grant.token, end_cause::Kind::Transferred)
        .await;
    assert_eq!(cause.to_session, carol.session);
    assert_eq!(watcher.granted().await.token, handed.token);

    // Repeated under its number it says the same, and does nothing.
    let again = api.leases.transfer(chosen).await.unwrap().into_inner();
    assert_eq!(
        (again.to_session, again.token),
        (handed.to_session, handed.token)
    );
    let stale = api.release(&alice, 4, &grant).await.unwrap_err();
    assert_eq!(refusal(&stale).reason, Reason::StaleToken);
    let stale = api
        .leases
        .transfer(transfer(&alice, 5, grant.token, bob.session))
        .await;
    assert_eq!(refusal(&stale.unwrap_err()).reason, Reason::StaleToken);
    assert_eq!(
        api.check("db", grant.token).await.verdict(),
        Verdict::Superseded
    );
    assert_eq!(
        api.check("db", handed.token).await.verdict(),
        Verdict::Current
    );
    // And one that holds nothing hands nothing over, although it knows the token.
    let thief = api
        .leases
        .transfer(transfer(&bob, 2, handed.token, bob.session))
        .await;
    assert_eq!(refusal(&thief.unwrap_err()).reason, Reason::NotHolder);

    // The head of the queue is served next, as if nothing had happened.
    let head = transfer(&carol, 2, handed.token, 0);
    let last = api.leases.transfer(head).await.unwrap().into_inner();
    assert_eq!(
        (last.to_session, served(first).await.token),
        (bob.session, last.token)
    );
}

#[tokio::test]
async fn a_revoked_grant_ends_at_once_and_the_next_waits_until_its_holder_knows() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let (alice, bob) = (api.open("alice").await, api.open("bob").await);
    let grant = api.acquire(&alice, 1, "db").await.unwrap();
    let waiting = wait(&mut api, &bob, 0).await;
    let mut watcher = Watcher::of(&mut api, "db").await;

    revoke(&mut api, grant.token, false).await.unwrap();
    let cause = watcher.ended(grant.token, end_cause::Kind::Revoked).await;
    assert_eq!((&*cause.operator, &*cause.reason), ("olga", "stuck"));
    assert_eq!(api.check("db", grant.token).await.verdict(), Verdict::Ended);
    let stale = api.release(&alice, 2, &grant).await.unwrap_err();
    assert_eq!(refusal(&stale).reason, Reason::StaleToken);
    let lease = api.get("db").await.unwrap();
    assert_eq!((lease.holder, lease.waiters), (None, 1));
    assert!(lease.blocked_ms > 0, "nobody is granted it for a while");
    // A repeated revoke succeeds and changes nothing.
    revoke(&mut api, grant.token, false).await.unwrap();
    let lease = api.get("db").await.unwrap();
    assert_eq!((lease.holder, lease.waiters), (None, 1));

    let keep_alive = |acknowledged| v1::KeepAliveRequest {
        sessions: vec![alice.clone()],
        acknowledged,
        ..Default::default()
    };
    let known = v1::Acknowledged {
        session: alice.session,
        token: grant.token,
    };
    let (ask, asked) = tokio::sync::mpsc::channel(2);
    ask.send(keep_alive(vec![])).await.unwrap();
    let asked = tokio_stream::wrappers::ReceiverStream::new(asked);
    let kept = api.sessions.keep_alive(asked).await.unwrap();
    let mut answers = kept.into_inner();
    let told = answers.message().await.unwrap().unwrap();
    assert_eq!(told.lost[0].grants[0].token, grant.token);
    assert_eq!(api.get("db").await.unwrap().holder, None);
    ask.send(keep_alive(vec![known])).await.unwrap();
    let next = served(waiting).await;
    assert!(next.token > grant.token);
    assert_eq!(watcher.granted().await.token, next.token);
}

#[tokio::test]
async fn a_grant_revoked_now_is_the_next_ones_at_once() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let (alice, bob) = (api.open("alice").await, api.open("bob").await);
    let grant = api.acquire(&alice, 1, "db").await.unwrap();
    let waiting = wait(&mut api, &bob, 0).await;
    let mut watcher = Watcher::of(&mut api, "db").await;

    revoke(&mut api, grant.token, true).await.unwrap();

    watcher.ended(grant.token, end_cause::Kind::Revoked).await;
    let next = served(waiting).await;
    assert_eq!(watcher.granted().await.token, next.token);
    assert_eq!(
        api.check("db", grant.token).await.verdict(),
        Verdict::Superseded
    );
    // A repeated revoke succeeds, and ends no later grant.
    revoke(&mut api, grant.token, true).await.unwrap();
    assert_eq!(
        api.check("db", next.token).await.verdict(),
        Verdict::Current
    );
}

#[tokio::test]
async fn an_evicted_session_loses_its_leases_and_is_told() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let grant = api.acquire(&alice, 1, "db").await.unwrap();
    let mut watcher = Watcher::of(&mut api, "db").await;

    let evict = v1::EvictRequest {
        session: alice.session,
        reason: "gone".to_owned(),
        operator: "olga".to_owned(),
    };
    api.sessions.evict(evict).await.unwrap();

    let cause = watcher.ended(grant.token, end_cause::Kind::Evicted).await;
    assert_eq!((&*cause.operator, &*cause.reason), ("olga", "gone"));
    let late = api.acquire(&alice, 2, "other").await.unwrap_err();
    assert_eq!(refusal(&late).reason, Reason::SessionExpired);
    let late = api.release(&alice, 3, &grant).await.unwrap_err();
    assert_eq!(refusal(&late).reason, Reason::SessionExpired);
    let request = v1::KeepAliveRequest {
        sessions: vec![alice.clone()],
        ..Default::default()
    };
    let kept = api.sessions.keep_alive(tokio_stream::iter([request]));
    let told = kept.await.unwrap().into_inner().message().await;
    let ended = &told.unwrap().unwrap().ended[0];
    assert_eq!(
        (ended.session, ended.reason()),
        (alice.session, Reason::SessionExpired)
    );
    assert_eq!(api.check("db", grant.token).await.verdict(), Verdict::Ended);
}
