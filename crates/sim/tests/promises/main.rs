//! Whole runs: faults, peace and silence under every promise.
#![allow(clippy::unwrap_used)]

mod each_fault;
mod elections;
mod kept;
mod repeats;
mod restore;
mod rights;
mod sealing;

use std::time::Duration;

use ringfence_sim::faults::{Fault, Scheduled, Who};
use ringfence_sim::plan::Plan;
use ringfence_sim::play::play;
use ringfence_sim::trace::Trace;

/// The run of a seed whose faults come and go for so many seconds.
fn plan(seed: u64, seconds: u64) -> Plan {
    Plan::with(seed, Duration::from_secs(seconds))
}

/// Of the long seed 3207: no other client waits for a window that passes while its process stands.
#[test]
fn a_client_that_is_killed_where_it_stands_is_not_taken_to_have_believed_until_then() {
    let mut plan = plan(1, 60);
    plan.setup.nodes = 3;
    plan.clients = 3;
    plan.leases.truncate(1);
    plan.zombies_per_mille = 0;
    plan.rights = None;
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
/// the others, whichever its node was.
#[test]
fn a_rollback_of_all_disks_takes_back_who_came_and_who_went_since() {
    let mut plan = plan(1, 20);
    plan.setup.nodes = 3;
    plan.clients = 3;
    plan.rights = None;
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
    // Both checkers see what was before, and no more.
    assert_eq!((played.checked.unknown, played.checked.partial), (0, 2));
    let unchecked = played.checked.unchecked;
    assert!(!unchecked.is_zero() && unchecked < played.simulated);
}
