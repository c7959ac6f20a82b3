//! Whole runs: faults, peace and silence under every promise, from seeds that are kept.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ringfence_sim::plan::Plan;
use ringfence_sim::play::play;
use ringfence_sim::trace::Trace;

/// The plans of all lines.
fn plans() -> Vec<Plan> {
    let lines = include_str!("../../seeds.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let seed = words.next().unwrap().parse().unwrap();
            match words.next() {
                Some(seconds) => plan(seed, seconds.parse().unwrap()),
                None => Plan::of(seed),
            }
        })
        .collect()
}

fn plan(seed: u64, seconds: u64) -> Plan {
    Plan::with(seed, Duration::from_secs(seconds))
}

#[test]
fn the_seeds_that_are_kept_break_no_promise() {
    for plan in plans() {
        let (seed, safety) = (plan.seed, plan.safety);
        let played = play(&plan, Trace::new(false));
        if let Some((violation, newest)) = played.broken {
            panic!("seed {seed} with {safety:?}: {violation}\n{newest}");
        }
        assert!(played.counts.grants > 0, "seed {seed} grants nothing");
        assert!(played.counts.admitted > 0, "seed {seed} writes nothing");
    }
}

#[test]
fn a_seed_means_the_same_run_each_time() {
    let run = || play(&plan(4, 6), Trace::new(false));
    let (first, second) = (run(), run());
    assert_eq!(first.counts, second.counts);
    assert_eq!(first.hash, second.hash);
}
