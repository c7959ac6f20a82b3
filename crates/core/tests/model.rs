//! Plays random histories on the state machine and on a naive model of the contract: each entry
//! has the same outcome and the same events on both, the invariants hold after each, and a machine
//! restored from a snapshot at any point goes on like the one it was taken from.
//!
//! `PROPTEST_CASES` sets the number of histories, which is kept small enough for a debug build.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::test_runner::{FailurePersistence, FileFailurePersistence};
use ringfence_testkit::arbitrary::{
    AcquireAct, Act, By, History, Limits, Move, Pace, extreme_histories, histories,
};
use ringfence_testkit::run::play;

fn config(cases: u32) -> ProptestConfig {
    let cases = match std::env::var("PROPTEST_CASES") {
        Ok(given) => given.parse().expect("PROPTEST_CASES is a number"),
        Err(_) => cases,
    };
    // A caller that only wants to know whether it fails needs no smallest history, and no file of
    // it.
    let told = |variable| std::env::var_os(variable).is_some();
    let max_shrink_iters = match told("PROPTEST_MAX_SHRINK_ITERS") {
        true => ProptestConfig::default().max_shrink_iters,
        false => 20_000,
    };
    let file = FileFailurePersistence::Direct("tests/model.proptest-regressions");
    let failure_persistence = match told("PROPTEST_DISABLE_FAILURE_PERSISTENCE") {
        true => None,
        false => Some(Box::new(file) as Box<dyn FailurePersistence>),
    };
    ProptestConfig {
        cases,
        max_shrink_iters,
        failure_persistence,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn the_machine_does_what_the_model_does(history in histories(60)) {
        play(&history).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn extreme_numbers_neither_panic_nor_differ(history in extreme_histories(30)) {
        play(&history).map_err(TestCaseError::fail)?;
    }
}

/// Found at random once: the name of a lease whose only waiter had left stayed in the line of those
/// to be served, the lease was forgotten, and no machine could read the snapshot.
#[test]
fn a_name_forgotten_in_a_quiet_time_leaves_a_readable_snapshot() {
    let next = |pace, act| Move {
        pace,
        stray: false,
        by: By::Nobody,
        act,
    };
    let acquire = AcquireAct {
        lease: 0,
        wait: Some(1),
        lock_delay: 0,
        data: 0,
    };
    let open = Act::Open {
        id: 0,
        forged: false,
        seen_ago: None,
        ttl: 20_000,
        acquire: Some(acquire),
    };
    let history = History {
        limits: Limits::Wide,
        floor: Some(0),
        quiet: true,
        past: None,
        rights: Vec::new(),
        level: ringfence_core::LEVEL_REPEATS,
        crowd: 0,
        restore_after: 0,
        moves: vec![
            next(Pace::Still, open),
            next(Pace::By(1), Act::Tick),
            next(Pace::By(2_000), Act::Tick),
            next(Pace::By(2_000), Act::Tick),
        ],
    };
    play(&history).unwrap();
}
