//! What principals have is counted step by step. A machine that is restored counts it from the
//! records: both have to come to the same numbers, after each entry of any history.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringfence_core::StateMachine;
use ringfence_testkit::arbitrary::histories;
use ringfence_testkit::run::steps;

/// The counts are shown to no reader, so they are taken from the text for developers.
fn counts(machine: &StateMachine) -> String {
    let text = format!("{machine:?}");
    let from = text.find("usages: ").unwrap();
    let to = text[from..].find(", budget: ").unwrap();
    text[from..from + to].to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_principals_have_is_counted_as_from_the_records(history in histories(60)) {
        let mut machine = StateMachine::new();
        let mut events = Vec::new();
        for step in &steps(&history) {
            machine.apply(&step.entry, &mut events);
            let restored = StateMachine::restore(machine.records()).unwrap();
            prop_assert_eq!(counts(&machine), counts(&restored), "after {:?}", step.entry);
        }
    }
}
