//! S0: the raw lock.

use std::time::Duration;

use ringfence_client::{
    BootClock, Client, Clock, EndCause, Lock, Loss, RawLock, SessionOptions, SessionState, unstable,
};
use ringfence_proto::v1::RevokeRequest;
use ringfence_proto::v1::leases_client::LeasesClient;

use crate::support::{LEASE, client, one_node, within};

pub(crate) fn options(identity: &str, ttl: Duration) -> SessionOptions {
    SessionOptions {
        ttl,
        identity: identity.into(),
    }
}

pub(crate) fn lock(client: &Client, name: &str, identity: &str, ttl: Duration) -> RawLock {
    RawLock::new(client, name, options(identity, ttl)).unwrap()
}

/// Ends a grant as an operator does who edits the lock by hand.
pub(crate) async fn revoke(client: &Client, name: &str, token: u64) {
    let request = RevokeRequest {
        name: name.into(),
        token,
        now: false,
        reason: "edited by hand".into(),
        operator: "carol".into(),
    };
    let revoked = unstable::unary(client, move |channel| {
        let request = request.clone();
        async move { LeasesClient::new(channel).revoke(request).await }
    });
    revoked.await.unwrap();
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn s0_1_try_acquire_takes_renews_or_says_no() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let mut alice = lock(&client, "db", "alice", MINUTE);
    let mut bob = lock(&client, "db", "bob", MINUTE);

    assert!(alice.try_acquire().await.unwrap());
    let term = alice.term();
    assert!(!bob.try_acquire().await.unwrap());
    assert!(alice.try_acquire().await.unwrap(), "it is mine already");
    assert_eq!(alice.term(), term, "renewing is no new term");

    assert!(alice.try_release().await.unwrap());
    assert!(bob.try_acquire().await.unwrap());
    assert!(!alice.try_acquire().await.unwrap());
}

#[tokio::test]
async fn s0_1_of_many_who_try_at_once_one_succeeds() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let tries = (0..32).map(|n| {
        let mut lock = lock(&client, "db", &format!("n{n}"), MINUTE);
        tokio::spawn(async move { (lock.try_acquire().await.unwrap(), lock) })
    });
    let tries: Vec<_> = tries.collect();
    let mut mine = Vec::new();
    for one in tries {
        mine.push(one.await.unwrap());
    }
    assert_eq!(mine.iter().filter(|(mine, _)| *mine).count(), 1);
}

#[tokio::test]
async fn s0_2_refresh_shows_the_newest_owner_and_changes_nothing() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let mut alice = lock(&client, "db", "alice", MINUTE);
    let mut bob = lock(&client, "db", "bob", MINUTE);
    bob.refresh().await.unwrap();
    assert_eq!((bob.term(), bob.owner()), (-1, None));

    assert!(alice.try_acquire().await.unwrap());
    bob.refresh().await.unwrap();
    assert_eq!(bob.owner().unwrap().identity, "alice");
    assert_eq!(bob.term(), alice.term());
    assert_eq!(bob.locked_until(), None, "it is alice's");

    alice.try_release().await.unwrap();
    bob.refresh().await.unwrap();
    assert_eq!(bob.owner(), None);
    assert_eq!(bob.term(), alice.term(), "looking grants nothing");
}

#[tokio::test]
async fn s0_3_only_the_owner_releases_and_the_term_goes_on() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let mut alice = lock(&client, "db", "alice", MINUTE);
    let mut bob = lock(&client, "db", "bob", MINUTE);
    assert!(alice.try_acquire().await.unwrap());
    let before = alice.term();

    assert!(bob.try_release().await.unwrap(), "not owned counts");
    assert!(alice.try_acquire().await.unwrap(), "and is still alice's");

    assert!(alice.try_release().await.unwrap());
    assert!(alice.try_release().await.unwrap(), "twice does no harm");
    assert_eq!(alice.term(), before);
    assert!(bob.try_acquire().await.unwrap());
    assert!(bob.term() > before);
}

#[tokio::test]
async fn s0_4_theft_is_seen_before_the_next_renewal() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    // The next keep-alive is ten minutes away.
    let ttl = Duration::from_secs(4 * 60);
    let mut alice = lock(&client, "db", "alice", ttl);
    assert!(alice.try_acquire().await.unwrap());
    let lost = alice.lost().unwrap();
    let operator = Client::connect(cluster.endpoints()).await.unwrap();
    let token = u64::try_from(alice.term()).unwrap();

    revoke(&operator, "db", token).await;

    let loss = within("the theft is seen", lost).await;
    let Loss::GrantEnded {
        cause: Some(EndCause::Revoked {
            operator: revoked_by,
            ..
        }),
    } = loss
    else {
        panic!("{loss:?}");
    };
    assert_eq!(revoked_by, "carol");
    assert!(!alice.is_mine());
    assert_eq!(alice.locked_until(), None);

    // The cluster heard that she knows: no client has to wait for her TTL of four minutes.
    let next = operator.open_session(options("bob", MINUTE)).await.unwrap();
    let taking = next.acquire("db").wait(MINUTE * 5).send();
    assert!(within("the takeover", taking).await.unwrap().is_valid());
}

#[tokio::test]
async fn s0_5_the_owner_is_warned_then_loses_then_another_may_take_it() {
    let cluster = one_node().await;
    let near = client(&cluster).await;
    let far = Client::connect(cluster.endpoints()).await.unwrap();
    let session = near.open_session(options("alice", LEASE)).await.unwrap();
    let lease = session.acquire("db").send().await.unwrap();
    let bob = far.open_session(options("bob", LEASE)).await.unwrap();
    let waiting = tokio::spawn(async move {
        let lease = bob.acquire("db").wait(MINUTE).send().await.unwrap();
        (BootClock.now(), lease)
    });
    // From now on nothing renews: the heartbeat is not kept.
    let promise = session.heartbeat(Duration::ZERO);

    let mut state = session.state();
    let warned = state.wait_for(|state| *state != SessionState::Live);
    let warned = within("a warning", warned).await.unwrap().clone();
    let warned_at = BootClock.now();
    assert!(
        matches!(warned, SessionState::Jeopardy { .. }),
        "{warned:?}"
    );
    assert!(lease.is_valid(), "warned while it is still held");
    let until = lease.valid_until();

    assert_eq!(within("the loss", lease.lost()).await, Loss::Stuck);
    let (granted_at, _lease) = within("the takeover", waiting).await.unwrap();
    assert!(
        warned_at < until && until < granted_at,
        "{until:?} {granted_at:?}"
    );
    drop(promise);
}

#[tokio::test]
async fn s0_7_a_lock_that_is_called_no_more_goes_stale_and_others_take_it() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let mut alice = lock(&client, "db", "alice", LEASE);
    let mut bob = lock(&client, "db", "bob", LEASE);
    assert!(alice.try_acquire().await.unwrap());
    let lost = alice.lost().unwrap();

    assert_eq!(within("it goes stale", lost).await, Loss::Stuck);
    let taking = async {
        while !bob.try_acquire().await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("bob takes it", taking).await;
    assert!(!alice.try_acquire().await.unwrap(), "no wrong true");
}

#[tokio::test]
async fn s0_7_who_uses_another_name_is_refused_by_the_guard() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let mut right = lock(&client, "db/a", "alice", MINUTE);
    let mut wrong = lock(&client, "db/b", "bob", MINUTE);
    assert!(right.try_acquire().await.unwrap() && wrong.try_acquire().await.unwrap());
    let fence = |lock: &RawLock| lock.lease().unwrap().fence();
    let (right, wrong) = (fence(&right), fence(&wrong));
    let guard = ringfence_guard::Guard::new(right.name.clone());

    guard.admit(&right).unwrap();
    let refused = guard.admit(&wrong).unwrap_err();
    assert!(refused.to_string().contains("db/a"), "{refused}");
}

#[tokio::test]
async fn s0_10_terms_only_grow_and_belong_to_one_owner() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let mut locks = [
        lock(&client, "db", "alice", MINUTE),
        lock(&client, "db", "bob", MINUTE),
    ];
    assert_eq!(locks[0].term(), -1, "nothing is known");
    let mut newest = -1;
    for turn in 0..6 {
        let lock = &mut locks[turn % 2];
        assert!(lock.try_acquire().await.unwrap());
        assert!(lock.term() > newest);
        newest = lock.term();
        assert_eq!(Lock::owner(lock), Some(["alice", "bob"][turn % 2]));
        assert!(lock.locked_until().is_some());
        lock.try_release().await.unwrap();
        assert_eq!(lock.locked_until(), None);
        assert_eq!(lock.term(), newest, "a release does not forget it");
    }
}
