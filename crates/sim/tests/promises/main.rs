//! Whole runs: faults, peace and silence under every promise, from seeds that are kept.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ringfence_sim::plan::Plan;
use ringfence_sim::play::{Played, play};
use ringfence_sim::trace::Trace;

/// Seed and seconds of each line.
fn seeds() -> Vec<(u64, u64)> {
    let lines = include_str!("../../seeds.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let mut number = || words.next().unwrap().parse().unwrap();
            (number(), number())
        })
        .collect()
}

fn run(seed: u64, seconds: u64) -> Played {
    let plan = Plan::with(seed, Duration::from_secs(seconds));
    play(&plan, Trace::new(false))
}

#[test]
fn the_seeds_that_are_kept_break_no_promise() {
    for (seed, seconds) in seeds() {
        let played = run(seed, seconds);
        if let Some((violation, newest)) = played.broken {
            panic!("seed {seed} with {seconds} s: {violation}\n{newest}");
        }
        assert!(played.counts.grants > 0, "seed {seed} grants nothing");
        assert!(played.counts.admitted > 0, "seed {seed} writes nothing");
    }
}

#[test]
fn a_seed_means_the_same_run_each_time() {
    let (first, second) = (run(4, 6), run(4, 6));
    assert_eq!(first.counts, second.counts);
    assert_eq!(first.hash, second.hash);
}
