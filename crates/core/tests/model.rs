//! Plays random histories on the state machine and on a naive model of the contract: each entry
//! has the same outcome and the same events on both, the invariants hold after each, and a machine
//! restored from a snapshot at any point goes on like the one it was taken from.
//!
//! `PROPTEST_CASES` sets the number of histories, which is kept small enough for a debug build.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use ringfence_testkit::arbitrary::{extreme_histories, histories};
use ringfence_testkit::run::play;

fn config(cases: u32) -> ProptestConfig {
    let cases = match std::env::var("PROPTEST_CASES") {
        Ok(given) => given.parse().expect("PROPTEST_CASES is a number"),
        Err(_) => cases,
    };
    ProptestConfig {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/model.proptest-regressions",
        ))),
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
