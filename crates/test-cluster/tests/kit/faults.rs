//! Each fault does what it says, as the real client sees it.

use std::time::Duration;

use ringfence_client::{EndCause, HeldLease, Loss, Session, SessionOptions, SessionState, Verdict};
use ringfence_test_cluster::{Stale, TestClient, TestCluster, explore};
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(6);
const LEASE: &str = "jobs/x";

async fn session(client: &TestClient) -> Session {
    let options = SessionOptions {
        ttl: TTL,
        identity: client.name().to_owned(),
    };
    client.open_session(options).await.unwrap()
}

/// A world with a holder.
async fn held(seed: u64) -> (TestCluster, TestClient, HeldLease) {
    let world = TestCluster::new(seed);
    let alice = world.client("alice").await;
    let lease = session(&alice).await.acquire(LEASE).send().await.unwrap();
    (world, alice, lease)
}

/// The next holder, once the lease is free.
async fn next(world: &TestCluster) -> HeldLease {
    let bob = world.client("bob").await;
    bob.lock(LEASE).ttl(TTL).wait(3 * TTL).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_undisturbed_holder_keeps_its_lease() {
    let (_world, alice, lease) = held(1).await;
    sleep(100 * TTL).await;
    assert!(lease.is_valid());
    let verdict = alice.check(lease.name(), lease.token()).await.unwrap();
    assert_eq!(verdict, Verdict::Current);
}

#[tokio::test(start_paused = true)]
async fn a_pause_beyond_the_ttl_loses_the_lease_at_the_wake() {
    let (world, alice, lease) = held(2).await;
    world.pause(&alice);
    let taken = next(&world).await;
    assert!(taken.token() > lease.token());
    world.resume(&alice);
    assert_eq!(lease.lost().await, Loss::WindowPassed);
    assert!(!lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_short_pause_costs_nothing() {
    let (world, alice, lease) = held(3).await;
    for _ in 0..20 {
        world.pause(&alice);
        sleep(TTL / 2).await;
        world.resume(&alice);
        sleep(Duration::from_secs(1)).await;
        assert!(lease.is_valid());
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_process_does_nothing() {
    let world = TestCluster::new(4);
    let alice = world.client("alice").await;
    let table = world.unguarded_store(LEASE, 0);
    let (here, spawned) = (table.connect(&alice), table.connect(&alice));
    world.spawn(&alice, async move {
        // What the host does not know stops at the store.
        drop(tokio::spawn(async move {
            loop {
                spawned.write(spawned.read().await + 1).await;
            }
        }));
        loop {
            here.write(here.read().await + 1).await;
        }
    });
    sleep(Duration::from_secs(1)).await;
    world.pause(&alice);
    // What is under way arrives.
    sleep(Duration::from_secs(1)).await;
    let before = table.value();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(table.value(), before);
    world.resume(&alice);
    sleep(Duration::from_secs(1)).await;
    assert!(table.value() > before);
}

#[tokio::test(start_paused = true)]
async fn a_process_is_paused_between_a_read_and_its_write() {
    let world = TestCluster::new(5);
    let alice = world.client("alice").await;
    let table = world.unguarded_store(LEASE, 100);
    let account = table.connect(&alice);
    world.pause_at_next_store_answer(&alice);
    let work = world.spawn(&alice, async move {
        let read = account.read().await;
        account.write(read + 1).await;
    });
    sleep(TTL).await;
    assert!(world.story().contains("alice reads 100"));
    assert_eq!(table.value(), 100);
    world.resume(&alice);
    work.await.unwrap();
    assert_eq!(table.value(), 101);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_held_up_arrives_behind_the_next_holders() {
    let (world, alice, lease) = held(6).await;
    let table = world.unguarded_store(LEASE, "nothing");
    let (account, fence) = (table.connect(&alice), lease.fence());
    world.delay_next_store_call(&alice, 3 * TTL);
    world.spawn(&alice, async move {
        account.write_under(&fence, "alice's").await;
    });
    sleep(Duration::from_secs(1)).await;
    lease.release().await.unwrap();
    let bob = world.client("bob").await;
    let taken = bob.lock(LEASE).await.unwrap();
    table
        .connect(&bob)
        .write_under(&taken.fence(), "bob's")
        .await;
    assert_eq!(table.value(), "bob's");
    sleep(3 * TTL).await;
    assert_eq!(table.value(), "alice's");
    let stale = table.stale_writes();
    assert_eq!(stale.len(), 1);
    assert_eq!(
        (stale[0].writer.as_str(), &stale[0].why),
        ("alice", &Stale::Seen(taken.token()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cut_brings_jeopardy_and_healing_in_time_ends_it() {
    let world = TestCluster::new(7);
    let alice = world.client("alice").await;
    let session = session(&alice).await;
    let lease = session.acquire(LEASE).send().await.unwrap();
    world.cut(&alice);
    let mut state = session.state();
    let jeopardy = |state: &SessionState| matches!(state, SessionState::Jeopardy { .. });
    timeout(TTL, state.wait_for(jeopardy))
        .await
        .unwrap()
        .unwrap();
    assert!(lease.is_valid());
    world.heal(&alice);
    let live = |state: &SessionState| *state == SessionState::Live;
    timeout(TTL, state.wait_for(live)).await.unwrap().unwrap();
    sleep(10 * TTL).await;
    assert!(lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_cut_beyond_the_window_ends_belief_before_the_next_grant() {
    let (world, alice, lease) = held(8).await;
    world.cut(&alice);
    assert_eq!(
        timeout(TTL, lease.lost()).await.unwrap(),
        Loss::WindowPassed
    );
    let verdict = world
        .client("carol")
        .await
        .check(lease.name(), lease.token())
        .await
        .unwrap();
    assert_eq!(
        verdict,
        Verdict::Current,
        "the cluster waits for longer than the client believes"
    );
    assert!(next(&world).await.token() > lease.token());
}

#[tokio::test(start_paused = true)]
async fn an_expiry_ends_the_session_at_the_cluster_and_the_client() {
    let (world, alice, lease) = held(9).await;
    timeout(TTL + Duration::from_secs(2), world.expire(&alice))
        .await
        .unwrap();
    assert!(world.story().contains("with token 1 ends: Expired"));
    assert!(!lease.is_valid());
    // The client lives, and stands again.
    assert!(next(&world).await.token() > lease.token());
    sleep(TTL).await;
    let again = alice.lock("jobs/y").await.unwrap();
    assert!(again.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_revoke_is_reported_before_the_next_grant() {
    let (world, _alice, lease) = held(10).await;
    assert!(world.revoke(LEASE));
    let taken = world.spawn(&world.client("bob").await, {
        let bob = world.client("carol").await;
        async move {
            bob.lock(LEASE)
                .ttl(TTL)
                .await
                .map(|held| (held.token(), held))
        }
    });
    let Loss::GrantEnded {
        cause: Some(EndCause::Revoked { operator, .. }),
    } = lease.lost().await
    else {
        panic!("{:?}", lease.loss());
    };
    assert_eq!(operator, "test");
    let (token, _held) = taken.await.unwrap().unwrap();
    assert!(token > lease.token());
    assert!(!world.revoke("jobs/none"));
}

#[tokio::test(start_paused = true)]
async fn a_stolen_lease_has_two_believers_for_a_while() {
    let (world, alice, lease) = held(11).await;
    let stolen = world.steal(LEASE).await;
    assert!(stolen.token() > lease.token());
    assert!(lease.is_valid() && stolen.is_valid());
    let verdict = alice.check(lease.name(), lease.token()).await.unwrap();
    assert_eq!(
        verdict,
        Verdict::Superseded {
            newest: stolen.token()
        }
    );
    assert!(matches!(lease.lost().await, Loss::GrantEnded { .. }));
    assert!(stolen.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_thief_comes_before_all_who_wait() {
    let (world, _alice, _lease) = held(12).await;
    let bob = world.client("bob").await;
    let waiting = world.spawn(&bob, {
        let bob = bob.client();
        async move { drop(bob.lock(LEASE).await) }
    });
    sleep(Duration::from_secs(1)).await;
    let stolen = world.steal(LEASE).await;
    assert!(stolen.is_valid());
    sleep(Duration::from_secs(1)).await;
    assert!(stolen.is_valid());
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn leases_survive_killed_leaders_and_calls_go_on() {
    let (world, alice, lease) = held(13).await;
    for round in 0..10 {
        world.kill_leader();
        // Asked while no node leads.
        let name = format!("jobs/{round}");
        let other = timeout(TTL, alice.lock(&name)).await.unwrap().unwrap();
        assert!(other.token() > lease.token());
        other.release().await.unwrap();
        assert!(lease.is_valid());
        sleep(TTL).await;
    }
    assert!(lease.is_valid());
    assert_eq!(world.story().matches("is killed").count(), 10);
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_their_order() {
    let (world, _alice, lease) = held(14).await;
    let mut waiting = Vec::new();
    for name in ["bob", "carol", "dave"] {
        let client = world.client(name).await;
        let locking = client.client();
        waiting.push(world.spawn(&client, async move {
            let held = locking.lock(LEASE).await.unwrap();
            let token = held.token();
            held.release().await.unwrap();
            token
        }));
        sleep(Duration::from_secs(1)).await;
    }
    lease.release().await.unwrap();
    let mut tokens = Vec::new();
    for waiting in waiting {
        tokens.push(waiting.await.unwrap());
    }
    assert!(tokens.is_sorted(), "{tokens:?}");
}

/// Found by this crate: the newest cluster time that such a client knows is older than an `Open` may
/// be.
#[tokio::test(start_paused = true)]
async fn a_client_that_asked_nothing_for_an_hour_is_granted_a_lease() {
    let (world, _alice, _lease) = held(15).await;
    let bob = world.client("bob").await;
    sleep(Duration::from_secs(3_600)).await;
    let held = bob.lock("jobs/y").await.unwrap();
    assert!(held.is_valid());
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(session(&bob).await.ttl(), TTL);
}

#[tokio::test(start_paused = true)]
async fn reads_are_answered_and_watches_find_no_node() {
    let (_world, alice, lease) = held(16).await;
    let info = alice.look_up(lease.name()).await.unwrap().unwrap();
    assert_eq!(info.holder.unwrap().token, lease.token());
    let mut watch = alice.watch("jobs");
    assert!(timeout(10 * TTL, watch.next()).await.is_err());
    assert!(lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn an_expiry_ends_also_if_the_way_is_healed_meanwhile_and_heals_if_it_is_dropped() {
    let (world, alice, lease) = held(21).await;
    let healing = async {
        loop {
            sleep(Duration::from_secs(3)).await;
            world.heal(&alice);
        }
    };
    tokio::select! {
        () = world.expire(&alice) => {}
        () = healing => {}
        () = sleep(6 * TTL) => panic!("{}", world.story()),
    }
    assert!(!lease.is_valid());
    let _again = alice.lock(LEASE).await.unwrap();
    let dropped = tokio::time::timeout(Duration::from_secs(1), world.expire(&alice));
    assert!(dropped.await.is_err());
    sleep(Duration::from_secs(1)).await;
    drop(alice.lock("another").await.unwrap());
}

/// What `trouble` holds up it does not leave to the time behind it.
#[test]
fn calls_that_were_held_up_have_arrived_when_trouble_ends() {
    let passed = explore(0..60, |world: TestCluster| async move {
        let table = world.unguarded_store(LEASE, 0);
        let client = world.client("alice").await;
        let (account, locking) = (table.connect(&client), client.client());
        world.spawn(&client, async move {
            let _lease = locking.lock(LEASE).await.unwrap();
            loop {
                account.read().await;
                sleep(Duration::from_millis(200)).await;
            }
        });
        world.trouble(Duration::from_secs(20)).await;
        let probe = table.connect(&client);
        let answered = tokio::time::timeout(Duration::from_secs(1), probe.read()).await;
        assert!(answered.is_ok(), "a call is held up behind the trouble");
    });
    passed.unwrap();
}
