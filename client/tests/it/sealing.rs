//! Leases that are sealed before they are held.

use std::sync::Arc;
use std::time::Duration;

use ringfence_client::{
    Acquire, AcquireError, BootClock, Client, Clock as _, Fence, FencingToken, HeldLease,
    LeaseName, Loss, Refused, Seal, SealAnswer, TransferError, Unsealed, sealable_fn,
};
use tokio::task::JoinHandle;

use crate::support::{
    Act, Cluster, FakeGuard, SteppedClock, alone, at, client, eventually, failing, is_keep_alive,
    is_release, served, session, unsealed, within,
};

fn name(name: &str) -> LeaseName {
    LeaseName::parse(name).unwrap()
}

fn fence(token: u64) -> Fence {
    Fence::new(name("db"), FencingToken::new(token).unwrap())
}

type Acquiring = JoinHandle<Result<HeldLease, AcquireError>>;

/// An acquire of `db` whose grant is being sealed: `hanging` has been asked.
async fn sealing(acquire: Acquire, hanging: &FakeGuard) -> Acquiring {
    let before = hanging.asked().len();
    let acquiring = tokio::spawn(acquire.send());
    eventually("it is being sealed", || hanging.asked().len() > before).await;
    acquiring
}

async fn ended(acquiring: Acquiring) -> Loss {
    match within("the end", acquiring).await.unwrap() {
        Err(AcquireError::Ended(loss)) => loss,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_lease_is_held_when_all_its_guards_have_raised_their_marks() {
    let (_cluster, _node, session) = alone().await;
    let (prompt, late) = (FakeGuard::new("prompt"), FakeGuard::hanging("late"));
    prompt.restore(1);
    let acquire = session.acquire("db").seal(at([&prompt, &late]));
    let acquiring = sealing(acquire, &late).await;
    eventually("the prompt one has answered", || prompt.mark() == 1).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(!acquiring.is_finished(), "held before the last answer");

    late.let_go();

    let lease = within("the lease", acquiring).await.unwrap().unwrap();
    assert_eq!((prompt.mark(), late.mark()), (1, 1));
    assert!(lease.is_valid() && lease.unsealed().is_empty());
}

#[tokio::test]
async fn a_zombies_write_between_grant_and_belief_is_refused() {
    let (cluster, _node, client) = served().await;
    let (guard, slow) = (FakeGuard::new("store"), FakeGuard::hanging("slow"));
    let old = session(&client, Duration::from_secs(60)).await;
    let zombie = old.acquire("db").send().await.unwrap();
    guard.admit(&zombie.fence()).unwrap();
    // It never hears of it, and goes on.
    cluster.change(|model| model.end_held_by_operator("db"));
    let new = session(&client, Duration::from_secs(60)).await;

    let acquiring = sealing(new.acquire("db").seal(at([&guard, &slow])), &slow).await;
    eventually("the mark", || guard.mark() == 2).await;

    assert!(zombie.is_valid() && !acquiring.is_finished());
    let refused = guard.admit(&zombie.fence());
    assert!(
        matches!(refused, Err(Refused::StaleToken { .. })),
        "{refused:?}"
    );
    slow.let_go();
    let lease = within("the lease", acquiring).await.unwrap().unwrap();
    guard.admit(&lease.fence()).unwrap();
}

#[tokio::test]
async fn one_of_three_guards_hangs_and_the_lease_is_given_back() {
    let (cluster, _node, session) = alone().await;
    let (a, b, hung) = (
        FakeGuard::new("a"),
        FakeGuard::new("b"),
        FakeGuard::hanging("hung"),
    );
    let seal = at([&a, &hung, &b]).timeout(Duration::from_millis(80));

    let began = BootClock.now();
    let refused = unsealed(session.acquire("db").seal(seal.clone()).send().await);

    assert!(BootClock.now().saturating_since(began) >= Duration::from_millis(80));
    assert!(
        matches!(&refused[..], [(label, Unsealed::NoAnswer { .. })] if label == "hung"),
        "{refused:?}"
    );
    eventually("the release", || cluster.model().is_quiet()).await;

    // What was late lands, and does no harm: its token is below that of every later grant.
    hung.let_go();
    eventually("the late advance", || hung.mark() == 1).await;
    let lease = session.acquire("db").seal(seal).send().await.unwrap();
    assert_eq!((lease.token().get(), hung.mark()), (2, 2));
}

#[tokio::test]
async fn a_late_advance_of_a_lease_that_was_given_back_lowers_no_mark() {
    let (_cluster, _node, session) = alone().await;
    let hung = FakeGuard::hanging("hung");
    let seal = at([&hung]).timeout(Duration::from_millis(30));
    unsealed(session.acquire("db").seal(seal.clone()).send().await);
    // The next holder reaches the store first.
    let next = session.acquire("db").send().await.unwrap();
    hung.admit(&next.fence()).unwrap();

    hung.let_go();
    tokio::time::sleep(Duration::from_millis(30)).await;

    assert_eq!(hung.mark(), 2);
    hung.admit(&next.fence()).unwrap();
    assert!(hung.admit(&fence(1)).is_err());
}

#[tokio::test]
async fn one_of_three_guards_hangs_and_the_holder_goes_on_and_knows_it() {
    let (_cluster, _node, session) = alone().await;
    let (a, b, hung) = (
        FakeGuard::new("a"),
        FakeGuard::new("b"),
        FakeGuard::hanging("hung"),
    );
    let seal = at([&a, &hung, &b]).timeout(Duration::from_millis(50));

    let lease = session.acquire("db").seal(seal.go_on_unsealed()).send();
    let lease = lease.await.unwrap();

    let named: Vec<_> = lease.unsealed().iter().map(|g| g.label.clone()).collect();
    assert_eq!(named, ["hung"]);
    assert!(lease.is_valid());
    assert_eq!((a.mark(), b.mark(), hung.mark()), (1, 1, 0));
    // It says so also to work that has the term alone, and after a hand-over that came to nothing.
    let Err(TransferError::NotWaiting { lease: Some(lease) }) = lease.transfer_to(None).await
    else {
        panic!("none waits")
    };
    assert_eq!(lease.term().unsealed().len(), 1);
}

#[tokio::test]
async fn what_goes_on_waits_for_all_guards_and_names_every_one_that_is_unsealed() {
    let (_cluster, _node, session) = alone().await;
    let broken = FakeGuard::answering("broken", failing("disk full"));
    let why = "one asynchronous standby".to_owned();
    let replica = FakeGuard::answering("replica", SealAnswer::NotDurable { why: why.clone() });
    let late = FakeGuard::hanging("late");
    let seal = at([&broken, &replica, &late]).go_on_unsealed();
    let acquiring = sealing(session.acquire("db").seal(seal), &late).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!acquiring.is_finished());

    late.let_go();

    let lease = within("the lease", acquiring).await.unwrap().unwrap();
    let unsealed: Vec<_> = lease.unsealed().iter().map(ToString::to_string).collect();
    assert_eq!(
        unsealed,
        [
            "broken: it failed: disk full".to_owned(),
            format!("replica: its store can lose the mark: {why}")
        ]
    );
}

#[tokio::test]
async fn a_store_that_can_lose_the_mark_counts_as_unsealed() {
    let (cluster, _node, session) = alone().await;
    let why = "asynchronous replication".to_owned();
    let replica = FakeGuard::answering("replica", SealAnswer::NotDurable { why });

    let refused = session.acquire("db").seal(at([&replica])).send().await;

    let error = refused.unwrap_err().to_string();
    assert_eq!(
        error,
        "the lease was given back, since not all guards are sealed: replica: its store can lose \
         the mark: asynchronous replication"
    );
    assert_eq!(replica.mark(), 1, "what was raised stays");
    eventually("the release", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn a_guard_that_had_not_answered_when_another_failed_is_not_blamed() {
    let (_cluster, _node, session) = alone().await;
    let broken = FakeGuard::answering("broken", failing("connection refused"));
    let slow = FakeGuard::hanging("slow");

    let began = BootClock.now();
    let refused = unsealed(
        session
            .acquire("db")
            .seal(at([&slow, &broken]))
            .send()
            .await,
    );

    let why = "connection refused".into();
    assert_eq!(refused, [("broken".into(), Unsealed::Failed { why })]);
    assert!(
        BootClock.now().saturating_since(began) < Duration::from_secs(4),
        "it waited for the other"
    );
}

#[tokio::test]
async fn a_stale_token_ends_the_grant_whatever_the_seal_says() {
    let (cluster, _node, session) = alone().await;
    let (ahead, slow) = (FakeGuard::new("ahead"), FakeGuard::hanging("slow"));
    ahead.restore(9);
    for seal in [at([&ahead, &slow]), at([&ahead, &slow]).go_on_unsealed()] {
        let refused = session.acquire("db").seal(seal).send().await;
        let is_lost = matches!(refused, Err(AcquireError::Ended(Loss::Reported)));
        assert!(is_lost, "{refused:?}");
        eventually("the release", || cluster.model().is_quiet()).await;
    }
    assert_eq!(ahead.mark(), 9);
}

#[tokio::test]
async fn a_guard_that_panics_has_failed() {
    let (_cluster, _node, session) = alone().await;
    let panics = sealable_fn("panics", |fence: Fence| async move {
        assert!(fence.token.get() > 99, "no connection pool");
        SealAnswer::Durable
    });

    let refused = unsealed(session.acquire("db").seal(Seal::at(panics)).send().await);

    let why = "panicked: no connection pool".into();
    assert_eq!(refused, [("panics".into(), Unsealed::Failed { why })]);
}

#[tokio::test]
async fn a_grant_that_is_revoked_while_it_is_sealed_was_never_held() {
    let (cluster, _node, client) = served().await;
    let session = session(&client, Duration::from_millis(900)).await;
    let hung = FakeGuard::hanging("hung");
    let seal = at([&hung]).timeout(Duration::from_secs(60));
    let acquiring = sealing(session.acquire("db").seal(seal), &hung).await;

    cluster.change(|model| model.revoke("db"));

    let loss = ended(acquiring).await;
    assert!(
        matches!(loss, Loss::GrantEnded { cause: Some(_) }),
        "{loss}"
    );
    // Nothing works under it, so the next holder need not wait.
    eventually("the acknowledgement", || {
        cluster.model().acknowledged.contains(&1)
    })
    .await;
    assert!(session.is_live());
    assert_eq!(cluster.count(is_release), 0);
}

#[tokio::test]
async fn a_session_that_is_lost_while_its_lease_is_sealed_never_held_it() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let clock = Arc::new(SteppedClock::new());
    let builder = Client::builder().endpoints([node.address()]);
    let client = builder
        .clock(Arc::clone(&clock) as _)
        .connect()
        .await
        .unwrap();
    for ends in [0, 1] {
        let session = session(&client, Duration::from_millis(1_500)).await;
        let hung = FakeGuard::hanging("hung");
        let seal = at([&hung]).timeout(Duration::from_secs(60));
        let acquiring = sealing(session.acquire("db").seal(seal.go_on_unsealed()), &hung).await;

        let loss = if ends == 0 {
            let number = session.id().get();
            cluster.change(|model| model.end_session(number));
            ended(acquiring).await
        } else {
            clock.step(Duration::from_secs(3_600));
            ended(acquiring).await
        };

        let expected = match ends {
            0 => Loss::SessionEnded { cause: None },
            _ => Loss::WindowPassed,
        };
        assert_eq!(loss, expected);
        // The answer that comes now changes nothing.
        hung.let_go();
        assert!(!session.is_live());
    }
}

#[tokio::test]
async fn sealing_ends_when_the_session_comes_into_jeopardy() {
    let (cluster, node, client) = served().await;
    let session = session(&client, Duration::from_millis(2_000)).await;
    node.script(is_keep_alive, Act::Swallow, usize::MAX);
    let hung = FakeGuard::hanging("hung");
    let seal = at([&hung]).timeout(Duration::from_secs(60));

    let refused = unsealed(within("the end", session.acquire("db").seal(seal).send()).await);

    assert_eq!(refused, [("hung".into(), Unsealed::Jeopardy)]);
    assert!(session.is_live(), "jeopardy comes before the loss");
    eventually("the release", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn sealing_goes_on_across_a_change_of_the_leader() {
    let cluster = Cluster::new();
    let (first, second) = (cluster.node().await, cluster.node().await);
    let client = client(&[&first, &second]).await;
    let session = session(&client, Duration::from_millis(900)).await;
    let hung = FakeGuard::hanging("hung");
    let seal = at([&hung]).timeout(Duration::from_secs(60));
    let acquiring = sealing(session.acquire("db").seal(seal), &hung).await;
    drop(first);
    let before = cluster.count(is_keep_alive);
    eventually("keep-alives go on", || {
        cluster.count(is_keep_alive) > before
    })
    .await;

    hung.let_go();

    let lease = within("the lease", acquiring).await.unwrap().unwrap();
    assert_eq!((lease.token().get(), hung.mark()), (1, 1));
}

#[tokio::test]
async fn a_dropped_acquire_that_is_being_sealed_is_released() {
    let (cluster, _node, session) = alone().await;
    let hung = FakeGuard::hanging("hung");
    let seal = at([&hung]).timeout(Duration::from_secs(60));
    let acquiring = sealing(session.acquire("db").seal(seal), &hung).await;

    acquiring.abort();

    eventually("the release", || cluster.model().is_quiet()).await;
    assert_eq!(cluster.model().grants, 1);
}

#[tokio::test]
async fn a_lease_handed_to_a_waiter_is_sealed_under_the_new_token() {
    let (cluster, _node, client) = served().await;
    let (mine, theirs) = (
        session(&client, Duration::from_secs(60)).await,
        session(&client, Duration::from_secs(60)).await,
    );
    let (guard, slow) = (FakeGuard::new("store"), FakeGuard::hanging("slow"));
    let old = mine.acquire("db").seal(at([&guard])).send().await.unwrap();
    let (shown, to) = (old.fence(), theirs.id());
    let seal = at([&guard, &slow]);
    let acquire = theirs
        .acquire("db")
        .wait(Duration::from_secs(60))
        .seal(seal);
    let waiting = tokio::spawn(acquire.send());
    eventually("it waits", || !cluster.model().queue.is_empty()).await;

    old.transfer_to(Some(to)).await.unwrap();

    eventually("it is being sealed", || guard.mark() == 2).await;
    assert!(guard.admit(&shown).is_err());
    assert!(!waiting.is_finished());
    slow.let_go();
    let new = within("the lease", waiting).await.unwrap().unwrap();
    assert_eq!(new.token().get(), 2);
}

/// A hand-over by its token that comes to nothing gives the grant back, to a caller that never
/// sealed it.
#[tokio::test]
async fn a_grant_that_comes_back_while_it_is_sealed_lists_all_its_guards() {
    let (_cluster, _node, session) = alone().await;
    let hung = FakeGuard::hanging("hung");
    let acquiring = sealing(session.acquire("db").seal(at([&hung])), &hung).await;

    let token = FencingToken::new(1).unwrap();
    let back = session.transfer(&name("db"), token, None).await;

    let Err(TransferError::NotWaiting { lease: Some(lease) }) = back else {
        panic!("{back:?}")
    };
    assert_eq!(ended(acquiring).await, Loss::Released);
    let unsealed: Vec<_> = lease
        .unsealed()
        .iter()
        .map(|guard| guard.why.clone())
        .collect();
    assert_eq!(unsealed, [Unsealed::Pending]);
}

/// See the contract of restored stores: the mark has fallen, and the seal with it.
#[tokio::test]
async fn a_store_restored_after_it_was_sealed_admits_older_tokens_until_its_mark_is_advanced() {
    let (_cluster, _node, session) = alone().await;
    let guard = FakeGuard::new("store");
    drop(session.acquire("db").send().await.unwrap());
    let lease = session
        .acquire("db")
        .seal(at([&guard]))
        .send()
        .await
        .unwrap();
    assert!(guard.admit(&fence(1)).is_err());

    guard.restore(0);
    assert!(guard.admit(&fence(1)).is_ok(), "what the seal cannot cover");

    // What an operator does before writes are served: the newest floor of the lease.
    guard.admit(&lease.fence()).unwrap();
    assert!(guard.admit(&fence(1)).is_err());
    assert!(lease.is_valid());
}
