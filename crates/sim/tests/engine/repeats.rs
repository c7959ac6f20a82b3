//! The same seed, the same run, to the byte.

use std::process::Command;
use std::time::Duration;

use ringfence_sim::node::Crash;
use ringfence_sim::world::{Setup, World};

use super::harness::{Caller, run};
use super::storm::storm;

/// Set in the processes that the test below starts: where to write their trace.
const TRACE_TO: &str = "RINGFENCE_SIM_TRACE_TO";

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

#[test]
fn two_processes_with_one_seed_write_the_same_trace() {
    if let Some(path) = std::env::var_os(TRACE_TO) {
        let lasts = Duration::from_secs(8);
        let report = run(21, Setup::default(), |world| storm(world, 3, lasts));
        std::fs::write(path, report.trace).unwrap();
        return;
    }
    let dir = std::env::temp_dir().join(format!("ringfence-sim-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let traces = ["a", "b"].map(|name| {
        let path = dir.join(name);
        let mut process = Command::new(std::env::current_exe().unwrap());
        let only = "repeats::two_processes_with_one_seed_write_the_same_trace";
        process.args(["--exact", only]).env(TRACE_TO, &path);
        assert!(process.output().unwrap().status.success());
        std::fs::read_to_string(path).unwrap()
    });
    std::fs::remove_dir_all(dir).unwrap();
    let [first, second] = traces;
    assert!(first.lines().count() > 100, "{first}");
    for (line, same) in first.lines().zip(second.lines()) {
        assert_eq!(line, same);
    }
    assert_eq!(first.len(), second.len());
}
