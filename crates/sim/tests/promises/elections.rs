//! Runs in which processes elect a leader at the Lease endpoint.

use ringfence_sim::plan::Plan;
use ringfence_sim::play::play;
use ringfence_sim::trace::Trace;

use super::plan;

/// How many seeds are looked at.
const SEEDS: std::ops::Range<u64> = 1..4;

/// What became of runs without other faults, with so many candidates: how often each case came about.
fn cases(electors: u32, named: &str) -> u64 {
    let played = SEEDS.map(|seed| {
        let mut plan = plan(seed, 25);
        plan.electors = electors;
        plan.faults.clear();
        let played = play(&plan, Trace::new(false));
        if let Some((violation, newest)) = played.broken {
            panic!("seed {seed}: {violation}\n{newest}");
        }
        println!("seed {seed}: {:?}", played.counts.cases);
        played.counts.cases.get(named).copied().unwrap_or_default()
    });
    played.sum()
}

#[test]
fn most_runs_have_an_election_and_some_a_single_candidate() {
    let of = |electors| (0..1_000).filter(move |seed| Plan::of(*seed).electors == electors);
    assert!((100..300).contains(&of(0).count()));
    assert!((100..300).contains(&of(1).count()));
}

/// Nothing that was counted from the loss is left when it wakes, and no other candidate has taken the
/// lease: its loop would go on with a second grant inside the term that it still believes in.
#[test]
fn a_leader_that_wakes_into_its_old_term_is_refused_until_it_noticed() {
    let refused = cases(1, "elector: refused until it noticed its loss");
    assert!(refused >= SEEDS.count() as u64, "{refused}");
}

#[test]
fn a_candidate_is_elected_while_the_leader_is_away() {
    let led = cases(3, "elector: leads");
    assert!(led > SEEDS.count() as u64, "{led}");
}
