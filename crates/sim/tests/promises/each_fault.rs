//! Faults that need more than their time: each comes about, and breaks no promise.

use std::time::Duration;

use ringfence_sim::faults::{Fault, Scheduled, Who};
use ringfence_sim::play::play;
use ringfence_sim::trace::Trace;

use super::plan;

const SECOND: Duration = Duration::from_secs(1);

/// A fault, from when on in seconds, and for how long.
type Row = (u64, u64, Fault);

/// Runs a cluster with these faults, and requires that all of them came about.
fn each_comes_about(nodes: usize, seconds: u64, rows: Vec<Row>) {
    let mut plan = plan(1, seconds);
    plan.setup.nodes = nodes;
    // Snapshots come soon, and leave little log behind.
    plan.setup.snapshot_log_bytes = 64 << 10;
    plan.setup.snapshot_log_keep = 10;
    plan.clients = 3;
    plan.watchers = 0;
    plan.ttls = vec![2 * SECOND];
    plan.quiet = 9 * SECOND;
    let scheduled = rows.into_iter().map(|(at, lasts, fault)| Scheduled {
        at: Duration::from_secs(at),
        lasts: Duration::from_secs(lasts),
        fault,
    });
    plan.faults = scheduled.collect();

    let played = play(&plan, Trace::new(false));

    if let Some((violation, newest)) = played.broken {
        panic!("{nodes} nodes: {violation}\n{newest}");
    }
    for one in &plan.faults {
        let took = played.counts.took.get(one.fault.row());
        assert!(took.is_some(), "{nodes} nodes: {one:?} did not come about");
    }
}

fn laggard(during: Fault) -> Fault {
    let during = Box::new(during);
    Fault::Laggard { during }
}

#[test]
fn a_node_joins_before_anything_is_written_whatever_the_number_of_first_members() {
    for (nodes, lags) in [(3, true), (4, false), (5, true), (7, false)] {
        each_comes_about(nodes, 5, vec![(0, 0, Fault::JoinFirst { lags })]);
    }
}

#[test]
fn changes_of_the_members_end_and_leave_a_live_majority() {
    let (first, second) = (Who::Behind(1), Who::Leader);
    let interrupted = |who, kill| Fault::InterruptedChange { who, kill };
    let removed = Fault::RemoveBesideDead(Who::Behind(2));
    for nodes in [3, 4] {
        let rows = vec![
            (3, 4, interrupted(first, false)),
            (8, 5, interrupted(second, true)),
            (14, 8, removed.clone()),
        ];
        each_comes_about(nodes, 23, rows);
    }
}

#[test]
fn snapshots_that_do_not_arrive_or_find_no_room_leave_nothing_behind() {
    let who = Who::Behind(1);
    let cancelled = |kill| Fault::CancelledTransfer { who, kill };
    let rows = vec![
        (3, 8, cancelled(false)),
        (12, 6, cancelled(true)),
        (19, 4, Fault::NoRoomForSnapshots),
    ];
    each_comes_about(3, 25, rows);
}

#[test]
fn a_node_whose_log_was_emptied_comes_back_as_another_one() {
    each_comes_about(3, 9, vec![(3, 3, Fault::EmptiedLog(Who::Behind(1)))]);
    each_comes_about(3, 9, vec![(3, 3, Fault::EmptiedLog(Who::Leader))]);
}

#[test]
fn a_leader_whose_disk_hangs_gives_way() {
    each_comes_about(3, 70, vec![(3, 65, Fault::LeaderDiskHangs)]);
}

#[test]
fn a_follower_may_need_a_snapshot_in_the_middle_of_it() {
    let who = Who::Behind(1);
    let kill = false;
    for during in [
        Fault::EmptiedLog(who),
        Fault::InterruptedChange { who, kill },
    ] {
        each_comes_about(3, 12, vec![(3, 6, laggard(during))]);
    }
}
