//! The same seed, the same run, to the byte.

use std::time::Duration;

use ringfence_sim::node::Crash;
use ringfence_sim::setup::Setup;
use ringfence_sim::world::World;

use super::harness::{Caller, run};

/// A cluster forms, grants, loses its leader, and grants again.
async fn lose_a_leader(world: World) -> (u64, u64) {
    let leader = world.form().await;
    let caller = Caller::new(&world, 1);
    let session = caller.open().await;
    let first = caller.acquire(session, 1, "db").await;
    world.node(leader).crash(Crash::Torn);
    let second = caller.acquire(session, 2, "cron").await;
    (first.get(), second.get())
}

#[test]
fn a_cluster_grants_before_and_after_its_leader_dies() {
    for seed in 1..=5 {
        let report = run(seed, Setup::default(), lose_a_leader);
        let (first, second) = report.value;
        assert!(second > first, "{}", report.trace);
    }
}

#[test]
fn equal_seeds_make_equal_traces() {
    let first = run(7, Setup::default(), lose_a_leader);
    let second = run(7, Setup::default(), lose_a_leader);
    assert_eq!(first, second);
    assert_ne!(first.hash, run(8, Setup::default(), lose_a_leader).hash);
}

#[test]
fn an_idle_cluster_does_next_to_nothing() {
    let report = run(2, Setup::default(), |world: World| async move {
        world.form().await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    });
    let seconds = report.simulated.as_secs();
    let (packets, turns) = (report.net.sent / seconds, report.turns / seconds);
    // Forty heartbeats and their answers, and the nodes' own timers.
    assert!(packets < 300, "{packets} packets a second");
    assert!(turns < 3_000, "{turns} turns a second");
}
