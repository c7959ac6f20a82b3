//! Runs in which leases are sealed.

use ringfence_sim::plan::Plan;
use ringfence_sim::play::play;
use ringfence_sim::trace::Trace;

use super::plan;

/// How many seeds are looked at.
const SEEDS: std::ops::Range<u64> = 1..4;

#[test]
fn a_quarter_of_all_acquires_is_sealed() {
    let seals = |seed: &u64| Plan::of(*seed).seals;
    let seals = (0..1_000).filter(seals).count();
    // Of their acquires one in two.
    assert!((400..600).contains(&seals), "{seals}");
}

#[test]
fn leases_are_sealed_at_stores_that_hang_answer_late_and_are_set_back() {
    let (mut sealed, mut unsealed, mut restored, mut refused) = (0, 0, 0, 0);
    for seed in SEEDS {
        let mut plan = plan(seed, 25);
        plan.seals = true;
        plan.rights = None;
        // Revokes wait for no holder: zombies write on while the next one begins.
        plan.revoke_now = true;
        plan.zombies_per_mille = 600;
        let played = play(&plan, Trace::new(false));
        if let Some((violation, newest)) = played.broken {
            panic!("seed {seed}: {violation}\n{newest}");
        }
        let counts = played.counts;
        println!("seed {seed}: {counts:?}");
        sealed += counts.sealed;
        unsealed += counts.held_unsealed;
        restored += counts.stores_restored;
        refused += counts.refused;
    }
    assert!(sealed > 5, "{sealed}");
    assert!(unsealed > 1, "{unsealed}");
    assert!(restored > 1, "{restored}");
    assert!(refused > 1, "{refused}");
}
