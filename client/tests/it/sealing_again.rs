//! Locks and electors whose leases are sealed.

use std::thread;
use std::time::Duration;

use ringfence_client::{
    BootClock, CampaignState, Client, Clock as _, Elector, Gauges, LeaseName, Refused, SealAnswer,
    Successor, Timings, Unsealed, blocking,
};

use crate::support::{
    FakeGuard, at, eventually, failing, is_acquire, is_open, served, unsealed, within,
};

#[tokio::test]
async fn a_lock_is_sealed_and_tries_again_under_a_new_token() {
    let (cluster, _node, client) = served().await;
    let guard = FakeGuard::answering("store", failing("it starts"));
    let locking = tokio::spawn(client.lock("db").seal(at([&guard])).into_future());
    eventually("two tries", || guard.asked().len() == 2).await;

    guard.answer(None);

    let lease = within("the lease", locking).await.unwrap().unwrap();
    let asked = guard.asked();
    assert!(
        asked.is_sorted_by(|a, b| a < b),
        "a token was used twice: {asked:?}"
    );
    assert_eq!(lease.token().get(), *asked.last().unwrap());
    assert_eq!(
        cluster.model().sessions.len(),
        1,
        "one session serves all tries"
    );
    assert_eq!(cluster.count(is_open), 0);
}

#[tokio::test]
async fn the_wait_of_a_lock_bounds_its_sealing() {
    let (cluster, _node, client) = served().await;
    let hung = FakeGuard::hanging("hung");
    let seal = at([&hung]).timeout(Duration::from_secs(60));
    let began = BootClock.now();

    let lock = client
        .lock("db")
        .seal(seal.clone())
        .wait(Duration::from_millis(100));
    let refused = unsealed(within("the end of the wait", lock.into_future()).await);

    assert!(BootClock.now().saturating_since(began) >= Duration::from_millis(100));
    assert!(
        matches!(refused[..], [(_, Unsealed::NoAnswer { .. })]),
        "{refused:?}"
    );
    eventually("nothing is left", || cluster.model().sessions.is_empty()).await;

    // With what goes on it is held when the wait is over.
    let lock = client.lock("db").seal(seal.go_on_unsealed());
    let lease = lock.wait(Duration::from_millis(100)).await.unwrap();
    assert_eq!(lease.unsealed().len(), 1);
}

#[tokio::test]
async fn a_lock_with_one_try_waits_for_its_guards_all_the_same() {
    let (_cluster, _node, client) = served().await;
    let late = FakeGuard::hanging("late");
    let locking = tokio::spawn(client.lock("db").try_once().seal(at([&late])).into_future());
    eventually("it is being sealed", || !late.asked().is_empty()).await;
    late.let_go();
    drop(within("the lease", locking).await.unwrap().unwrap());

    late.answer(Some(failing("gone")));
    let refused = unsealed(client.lock("db").try_once().seal(at([&late])).await);
    assert_eq!(refused.len(), 1);
    assert_eq!(late.asked().len(), 2, "one try");
}

#[tokio::test]
async fn a_lock_whose_guard_guards_another_lease_fails_at_once() {
    let (_cluster, _node, client) = served().await;
    let mistaken = FakeGuard::answering(
        "mistaken",
        SealAnswer::Refused(Refused::WrongLease {
            expected: LeaseName::parse("other").unwrap(),
            offered: LeaseName::parse("db").unwrap(),
        }),
    );

    let lock = client.lock("db").seal(at([&mistaken])).into_future();
    let refused = unsealed(within("the refusal", lock).await);

    assert!(
        matches!(refused[..], [(_, Unsealed::Refused(_))]),
        "{refused:?}"
    );
    assert_eq!(mistaken.asked().len(), 1);
}

fn elector(client: &Client, retry_ms: u64) -> Elector {
    let ms = |ms| Some(Duration::from_millis(ms));
    let timings = Timings::new(ms(60_000), ms(50_000), ms(retry_ms)).unwrap();
    Elector::builder(client).timings(timings).build()
}

#[tokio::test]
async fn an_elector_leads_when_its_guards_are_sealed() {
    let (_cluster, _node, client) = served().await;
    let late = FakeGuard::hanging("late");
    let campaign = elector(&client, 20).campaign("db").observe(false);
    let campaign = campaign.seal(at([&late]));
    let handle = campaign.handle();
    let mut state = handle.state();
    let running = tokio::spawn(campaign.run_callbacks());
    let sealing = state.wait_for(|state| matches!(state, CampaignState::Sealing { .. }));
    drop(within("sealing", sealing).await.unwrap());
    assert!(!handle.is_leading() && handle.range().is_none());

    late.let_go();

    eventually("it leads", || handle.is_leading()).await;
    assert_eq!(late.mark(), 1);
    handle.leave(Successor::Next);
    within("the end", running).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_elector_whose_seal_never_holds_pauses_longer_each_time_and_says_why() {
    let (cluster, _node, client) = served().await;
    let broken = FakeGuard::answering("ledger", failing("no such table"));
    let campaign = elector(&client, 10).campaign("db").observe(false);
    let campaign = campaign.seal(at([&broken]));
    let handle = campaign.handle();
    let mut state = handle.state();
    let running = tokio::spawn(campaign.run_callbacks());
    let mut pauses = Vec::new();
    while pauses.len() < 5 {
        let next = within("a pause", state.changed());
        next.await.unwrap();
        if let CampaignState::Pausing { pause, why } = &*state.borrow_and_update() {
            assert!(why.contains("ledger: it failed: no such table"), "{why}");
            pauses.push(*pause);
        }
    }
    // Each doubles, less a fifth at most.
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert!(pauses[4] >= Duration::from_millis(128), "{pauses:?}");
    assert!(!handle.is_leading());
    let tries = cluster.count(is_acquire);
    assert!(tries <= 7, "it spins: {tries} tries");

    broken.answer(None);
    eventually("it leads", || handle.is_leading()).await;
    running.abort();
}

#[tokio::test]
async fn a_campaign_that_is_left_while_it_seals_gives_the_lease_back() {
    let (cluster, _node, client) = served().await;
    let hung = FakeGuard::hanging("hung");
    let campaign = elector(&client, 20).campaign("db").observe(false);
    let campaign = campaign.seal(at([&hung]).timeout(Duration::from_secs(60)));
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run_callbacks());
    eventually("it is being sealed", || !hung.asked().is_empty()).await;

    handle.leave(Successor::Next);

    within("the end", running).await.unwrap().unwrap();
    eventually("the release", || cluster.model().is_quiet()).await;
}

#[tokio::test]
async fn s2_6_a_gauge_counts_the_guards_that_a_leader_goes_on_without() {
    let (_cluster, _node, client) = served().await;
    let gauges = Gauges::new();
    let (a, broken) = (
        FakeGuard::new("a"),
        FakeGuard::answering("broken", failing("gone")),
    );
    let campaign = elector(&client, 20).campaign("db").observe(false);
    let campaign = campaign.seal(at([&a, &broken]).go_on_unsealed());
    let campaign = campaign.gauges(&gauges).unwrap();
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run_callbacks());
    let counts = |unsealed: usize| {
        let shown = format!("ringfence_lease_unsealed_guards{{key=\"db\"}} {unsealed}\n");
        gauges.text().contains(&shown)
    };

    eventually("it leads without one", || counts(1)).await;

    assert_eq!(gauges.read()[0].unsealed_guards, 1);
    broken.answer(None);
    handle.step_down(Successor::Next);
    eventually("the next term has all", || handle.is_leading() && counts(0)).await;
    running.abort();
}

/// The guard needs no runtime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_acquire_is_sealed() {
    let (_cluster, node, _client) = served().await;
    let (guard, runtime) = (FakeGuard::new("store"), tokio::runtime::Handle::current());
    let (seal, address) = (at([&guard]), node.address());
    let acquiring = thread::spawn(move || {
        // Where this guard's driver runs.
        let _entered = runtime.enter();
        let client = blocking::Client::connect([address]).unwrap();
        let session = client.open_session(ringfence_client::SessionOptions::default());
        let session = session.unwrap();
        let lease = session.acquire("db").seal(seal).send().unwrap();
        (lease.token().get(), lease.unsealed().len())
    });
    let held = tokio::task::spawn_blocking(move || acquiring.join().unwrap());
    assert_eq!(within("the lease", held).await.unwrap(), (1, 0));
    assert_eq!(guard.mark(), 1);
}
