//! Mistakes of services and of guards are caught, and correct ones are not accused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{Client, Fence, FencingToken, Refused, Seal};
use ringfence_test_cluster::{Finding, Guarded, Stale, TestCluster, Unguarded, explore};

const LEASE: &str = "bank/interest";

/// A service that looks at its lease before each round, over any store.
async fn add_up<A>(client: Client, account: A)
where
    A: Fn(Fence, Step) -> futures_util::future::BoxFuture<'static, Result<u64, Refused>>,
{
    loop {
        let lease = client.lock(LEASE).await.expect("the cluster comes back");
        let fence = lease.fence();
        let mut refused = account(fence.clone(), Step::Begin).await.is_err();
        while lease.is_valid() && !refused {
            let Ok(amount) = account(fence.clone(), Step::Read).await else {
                break;
            };
            refused = account(fence.clone(), Step::Write(amount + 1))
                .await
                .is_err();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// What a service does with its store.
enum Step {
    Begin,
    Read,
    Write(u64),
}

/// A guard with a mistake, over a store without one.
#[derive(Clone, Copy)]
enum Mistake {
    /// No write is judged.
    WriteNotJudged,
    /// The judged mark is only raised by writes, and new holders do not advance it.
    NotAdvanced,
}

async fn step(
    account: Unguarded<u64>,
    mark: Arc<Mutex<Option<FencingToken>>>,
    mistake: Option<Mistake>,
    (fence, step): (Fence, Step),
) -> Result<u64, Refused> {
    let judge = || {
        let mut mark = mark.lock().unwrap();
        match mark.filter(|mark| *mark > fence.token) {
            Some(mark) => Err(fence.overtaken_by(mark)),
            None => {
                *mark = Some(fence.token);
                Ok(())
            }
        }
    };
    match (step, mistake) {
        (Step::Begin, Some(Mistake::NotAdvanced)) => Ok(0),
        (Step::Begin, _) => judge().map(|()| 0),
        (Step::Read, _) => Ok(account.read().await),
        (Step::Write(amount), mistake) => {
            if !matches!(mistake, Some(Mistake::WriteNotJudged)) {
                judge()?;
            }
            account.write_under(&fence, amount).await;
            Ok(amount)
        }
    }
}

fn explored(mistake: Option<Mistake>) -> Result<usize, Box<Finding>> {
    explore(0..60, |world| async move {
        let table = world.unguarded_store(LEASE, 0);
        let mark: Arc<Mutex<Option<FencingToken>>> = Arc::default();
        for name in ["alice", "bob"] {
            let client = world.client(name).await;
            let (account, mark) = (table.connect(&client), Arc::clone(&mark));
            let account = move |fence, what| -> futures_util::future::BoxFuture<'static, _> {
                Box::pin(step(account.clone(), mark.clone(), mistake, (fence, what)))
            };
            world.spawn(&client, add_up(client.client(), account));
        }
        world.trouble(Duration::from_secs(120)).await;
        world.assert_no_stale_write();
    })
}

#[test]
fn a_guard_that_does_not_judge_writes_is_caught() {
    let found = explored(Some(Mistake::WriteNotJudged)).unwrap_err();
    assert!(found.failure.contains("stale write"), "{found}");
    assert!(found.story.contains("STALE"), "{found}");
}

#[test]
fn a_holder_that_reads_before_it_advances_is_caught() {
    let found = explored(Some(Mistake::NotAdvanced)).unwrap_err();
    assert!(found.failure.contains("stale write"), "{found}");
}

/// It judges before the write is sent: what is held up on the way arrives behind a newer holder's.
#[test]
fn a_guard_outside_of_the_store_is_caught() {
    let found = explored(None).unwrap_err();
    assert!(found.story.contains("is held up"), "{found}");
}

async fn guarded(account: Guarded<u64>, (fence, step): (Fence, Step)) -> Result<u64, Refused> {
    match step {
        Step::Begin => account.advance(&fence).await.map(|()| 0),
        Step::Read => Ok(account.read().await),
        Step::Write(amount) => account.write(&fence, amount).await.map(|()| amount),
    }
}

#[test]
fn the_guard_inside_the_store_passes() {
    let passed = explore(0..60, |world| async move {
        let table = world.guarded_store(LEASE, 0);
        for name in ["alice", "bob"] {
            let client = world.client(name).await;
            let account = table.connect(&client);
            let account = move |fence, what| -> futures_util::future::BoxFuture<'static, _> {
                Box::pin(guarded(account.clone(), (fence, what)))
            };
            world.spawn(&client, add_up(client.client(), account));
        }
        world.trouble(Duration::from_secs(120)).await;
        world.assert_no_stale_write();
        assert!(table.value() > 0, "nothing was written");
    });
    assert_eq!(passed, Ok(60));
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_changes_nothing_and_its_story_says_why() {
    let world = TestCluster::new(1);
    let alice = world.client("alice").await;
    let table = world.guarded_store(LEASE, 100);
    let lease = alice.lock(LEASE).await.unwrap();
    let account = table.connect(&alice);
    account.advance(&lease.fence()).await.unwrap();
    account.write(&lease.fence(), 101).await.unwrap();

    let stolen = world.steal(LEASE).await;
    let thief = world.client("accomplice").await;
    table
        .connect(&thief)
        .advance(&stolen.fence())
        .await
        .unwrap();
    let refused = account.write(&lease.fence(), 102).await.unwrap_err();

    assert!(matches!(refused, Refused::StaleToken { .. }));
    assert_eq!(table.value(), 101);
    world.assert_no_stale_write();
    assert!(
        world.story().contains("alice is refused: "),
        "{}",
        world.story()
    );
}

#[tokio::test(start_paused = true)]
async fn a_sealed_lease_has_raised_the_mark_before_it_is_held() {
    let world = TestCluster::new(2);
    let alice = world.client("alice").await;
    let table = world.guarded_store(LEASE, 100);
    let old = alice.lock(LEASE).await.unwrap().fence();
    let bob = world.client("bob").await;
    let seal = Seal::at_all([table.guard()]);
    let _held = bob.lock(LEASE).seal(seal).await.unwrap();
    let late = table.connect(&alice).write(&old, 101).await;
    assert!(matches!(late, Err(Refused::StaleToken { .. })));
}

#[tokio::test(start_paused = true)]
#[should_panic = "1 stale write(s) in the world of seed 3, the first: alice wrote 1 under token 1"]
async fn a_stale_write_fails_the_assertion() {
    let world = TestCluster::new(3);
    let table = world.unguarded_store(LEASE, 0);
    let (alice, bob) = (world.client("alice").await, world.client("bob").await);
    let lease = alice.lock(LEASE).await.unwrap();
    lease.release().await.unwrap();
    let held = bob.lock(LEASE).await.unwrap();
    table.connect(&bob).read().await;
    // Alice shows nothing, and holds nothing any more.
    table.connect(&alice).write(1).await;
    drop(held);
    world.assert_no_stale_write();
}

/// Two processes of a service with a guard, which advances it and shows its fence, until a story ends badly.
fn found_behind_a_guard<F, S>(service: S) -> Finding
where
    F: Future<Output = ()> + Send + 'static,
    S: Fn(Client, Guarded<u64>) -> F + Copy,
{
    let found = explore(0..20, |world: TestCluster| async move {
        let table = world.guarded_store(LEASE, 0);
        for name in ["alice", "bob"] {
            let client = world.client(name).await;
            world.spawn(&client, service(client.client(), table.connect(&client)));
        }
        world.trouble(Duration::from_secs(60)).await;
        world.assert_no_stale_write();
    });
    *found.unwrap_err()
}

#[test]
fn a_guarded_service_that_reads_before_it_holds_the_lease_is_found() {
    let found = found_behind_a_guard(|client, account| async move {
        loop {
            let amount = account.read().await;
            let Ok(lease) = client.lock(LEASE).await else {
                continue;
            };
            let fence = lease.fence();
            if account.advance(&fence).await.is_ok() {
                account.write(&fence, amount + 1).await.ok();
            }
            lease.release().await.ok();
        }
    });
    assert!(
        found.to_string().contains("had written since it read last"),
        "{found}"
    );
}

#[test]
fn a_guarded_service_that_keeps_what_it_once_read_is_found() {
    let found = found_behind_a_guard(|client, account| async move {
        let mut amount = account.read().await;
        loop {
            let Ok(lease) = client.lock(LEASE).await else {
                continue;
            };
            let fence = lease.fence();
            if account.advance(&fence).await.is_ok() {
                amount += 1;
                account.write(&fence, amount).await.ok();
            }
            lease.release().await.ok();
        }
    });
    assert!(
        found.to_string().contains("had written since it read last"),
        "{found}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_without_the_lease_or_under_another_one_is_stale_and_accuses_no_other() {
    let world = TestCluster::new(9);
    let table = world.unguarded_store(LEASE, 0);
    let (alice, bob) = (world.client("alice").await, world.client("bob").await);
    let lease = alice.lock(LEASE).await.unwrap();
    let other = bob.lock("leader").await.unwrap();
    table.connect(&bob).write(1).await;
    table.connect(&bob).write_under(&other.fence(), 2).await;
    table.connect(&alice).write_under(&lease.fence(), 3).await;
    let stale = table.stale_writes();
    let whys: Vec<&Stale> = stale.iter().map(|write| &write.why).collect();
    assert_eq!(
        whys,
        [&Stale::NoToken, &Stale::OtherLease(other.name().clone())]
    );
}
