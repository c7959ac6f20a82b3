//! Clusters under everything at once: whatever dies, is cut off, paused or set wrong, all replicas
//! stay the same, and when it is over they serve again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_core::{Entry, Event, Outcome, StateMachine};
use ringfence_sim::listener::Listener;
use ringfence_sim::net::Weather;
use ringfence_sim::node::Crash;
use ringfence_sim::random::Random;
use ringfence_sim::runner;
use ringfence_sim::setup::Setup;
use ringfence_sim::trace::Trace;
use ringfence_sim::world::{World, state_hash};

use super::harness::Caller;

/// States are compared at every so manieth entry.
const COMPARED: u64 = 8;

/// Compares replicas.
#[derive(Default)]
pub(crate) struct Replicas {
    states: Mutex<BTreeMap<u64, u64>>,
    terms: Mutex<BTreeMap<u64, usize>>,
}

impl Replicas {
    fn compare(&self, node: usize, machine: &StateMachine, index: u64) {
        let hash = state_hash(machine);
        let mut states = self.states.lock().unwrap();
        let known = *states.entry(index).or_insert(hash);
        assert_eq!(known, hash, "node {node} differs at {index}");
    }
}

impl Listener for Replicas {
    fn applied(
        &self,
        node: usize,
        machine: &StateMachine,
        entry: &Entry,
        _outcome: &Outcome,
        _events: &[Event],
    ) {
        if entry.index.is_multiple_of(COMPARED) {
            self.compare(node, machine, entry.index);
        }
    }

    fn installed(&self, node: usize, machine: &StateMachine, index: u64, _term: u64) {
        if index.is_multiple_of(COMPARED) {
            self.compare(node, machine, index);
        }
    }

    fn leads(&self, node: usize, term: u64) {
        let other = *self.terms.lock().unwrap().entry(term).or_insert(node);
        assert_eq!(other, node, "two leaders in term {term}");
    }
}

/// One fault, which is over after a while.
async fn fault(world: &World, random: &mut Random) {
    let nodes = world.nodes();
    let at = |random: &mut Random| random.within(0..nodes.len() as u64) as usize;
    let (one, other) = (&nodes[at(random)], &nodes[at(random)]);
    let (a, b) = (one.machine().id(), other.machine().id());
    let lasts = random.time(Duration::from_millis(10)..Duration::from_secs(4));
    match random.within(0..12) {
        0 | 1 => {
            let how = [Crash::Kill, Crash::Power, Crash::Torn];
            one.crash(how[random.within(0..3) as usize]);
            tokio::time::sleep(lasts).await;
            one.start().await.unwrap();
        }
        2 => {
            one.stop().await;
            tokio::time::sleep(lasts / 4).await;
            one.start().await.unwrap();
        }
        3 | 4 => {
            one.machine().pause();
            tokio::time::sleep(lasts).await;
            one.machine().resume();
        }
        5 => {
            world.net().cut(a, b);
            tokio::time::sleep(lasts * 2).await;
            world.net().heal(a, b);
        }
        6 | 7 => {
            let all = world.machines();
            world
                .net()
                .isolate(a, all.iter().map(|machine| machine.id()));
            tokio::time::sleep(lasts * 2).await;
            world.net().heal_all();
        }
        8 => {
            let bad = Weather {
                delay: Duration::from_millis(1)..Duration::from_millis(120),
                lost_per_mille: 100,
                doubled_per_mille: 100,
            };
            world.net().set_default_weather(bad);
            tokio::time::sleep(lasts).await;
            world.net().set_default_weather(Weather::default());
        }
        9 => {
            one.machine().disk().stall(lasts / 2);
            tokio::time::sleep(lasts).await;
        }
        10 => {
            let ppm = random.within(0..200_000) as i64 - 100_000;
            one.machine().set_clock_rate(ppm);
            one.machine().step_wall_clock(ppm);
            tokio::time::sleep(lasts).await;
        }
        _ => {
            one.machine().disk().fail_next_sync();
            tokio::time::sleep(lasts).await;
            if !one.is_running() {
                one.start().await.unwrap();
            }
        }
    }
}

/// Faults one after another while callers work, then peace.
async fn storm(world: World, callers: u64, lasts: Duration) -> u64 {
    world.form().await;
    let mut work = Vec::new();
    let until = world.now() + lasts;
    for number in 1..=callers {
        let caller = Caller::new(&world, number);
        work.push(tokio::spawn(async move { caller.work_until(until).await }));
    }
    let mut random = world.random("faults");
    while world.now() < until {
        let calm = random.time(Duration::ZERO..Duration::from_secs(2));
        tokio::time::sleep(calm).await;
        fault(&world, &mut random).await;
    }
    world.net().heal_all();
    for node in world.nodes() {
        node.machine().resume();
        node.start().await.unwrap();
    }
    let leader = world.leader_within(Duration::from_secs(30)).await;
    assert!(leader.is_some(), "nobody leads after the storm");
    let mut done = 0;
    for one in work {
        let limit = Duration::from_secs(120);
        done += tokio::time::timeout(limit, one).await.unwrap().unwrap();
    }
    done
}

fn setup(seed: u64) -> Setup {
    Setup {
        nodes: if seed.is_multiple_of(3) { 5 } else { 3 },
        snapshot_log_bytes: 4 << 10,
        snapshot_log_keep: seed % 30,
        ..Setup::default()
    }
}

#[test]
fn replicas_stay_the_same_in_a_storm_and_serve_behind_it() {
    for seed in [1, 3] {
        let lasts = Duration::from_secs(20);
        let listener = Arc::new(Replicas::default());
        let trace = Trace::new(false);
        let report = runner::run(seed, setup(seed), listener, trace, |world| {
            storm(world, 4, lasts)
        });
        assert!(report.value > 0, "{}", report.trace);
    }
}

#[test]
fn a_storm_repeats_to_the_byte() {
    let storm = || {
        let listener = Arc::new(Replicas::default());
        let lasts = Duration::from_secs(10);
        runner::run(11, setup(11), listener, Trace::new(true), |world| {
            storm(world, 3, lasts)
        })
    };
    let (first, second) = (storm(), storm());
    for (first, second) in first.trace.lines().zip(second.trace.lines()) {
        assert_eq!(first, second);
    }
    assert_eq!(first, second);
}
