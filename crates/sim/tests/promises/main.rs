//! Whole runs: faults, peace and silence under every promise, from seeds that are kept.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ringfence_sim::faults::{Fault, Scheduled, Who};
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

/// Of the long seed 3207: nobody else waits for a window that passes while its process stands.
#[test]
fn a_client_that_is_killed_where_it_stands_is_not_taken_to_have_believed_until_then() {
    let mut plan = plan(1, 60);
    plan.setup.nodes = 3;
    plan.clients = 3;
    plan.leases.truncate(1);
    plan.zombies_per_mille = 0;
    let fault = |at, lasts, fault| Scheduled {
        at: Duration::from_secs(at),
        lasts: Duration::from_secs(lasts),
        fault,
    };
    let stopped_and_killed = |(client, at)| {
        let stopped = fault(at, 14, Fault::PauseClient { client });
        [stopped, fault(at + 12, 1, Fault::KillClient { client })]
    };
    let each = [(0, 4), (1, 9), (2, 24), (0, 34), (1, 39)];
    plan.faults = each.into_iter().flat_map(stopped_and_killed).collect();
    plan.faults.sort_by_key(|fault| fault.at);

    let played = play(&plan, Trace::new(false));

    if let Some((violation, newest)) = played.broken {
        panic!("{violation}\n{newest}");
    }
    assert!(played.counts.expiries > 1, "{:?}", played.counts);
}

/// Of seed 1074: a disk that is left out of a rollback of all disks belongs to another cluster than
/// the others, whoever its node was.
#[test]
fn a_rollback_of_all_disks_takes_back_who_came_and_who_went_since() {
    let mut plan = plan(1, 20);
    plan.setup.nodes = 3;
    plan.clients = 3;
    let fault = |at, lasts, fault| Scheduled {
        at: Duration::from_secs(at),
        lasts: Duration::from_secs(lasts),
        fault,
    };
    plan.faults = vec![
        fault(3, 11, Fault::RollBackAll),
        fault(4, 1, Fault::Replace(Who::Leader)),
        fault(7, 1, Fault::Replace(Who::Leader)),
        fault(10, 1, Fault::Replace(Who::Leader)),
    ];
    let played = play(&plan, Trace::new(false));
    if let Some((violation, newest)) = played.broken {
        panic!("{violation}\n{newest}");
    }
}
