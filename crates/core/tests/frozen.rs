//! A frozen state stays what it was, whatever is applied to the machine that it was taken from.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringfence_core::snapshot::Record;
use ringfence_core::{Frozen, StateMachine};
use ringfence_testkit::arbitrary::histories;
use ringfence_testkit::invariants::equal_states;
use ringfence_testkit::run::steps;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_stays_as_it_was_at_every_entry(history in histories(60)) {
        let mut machine = StateMachine::new();
        let mut kept: Vec<(Frozen, Vec<Record>)> = Vec::new();
        let mut events = Vec::new();
        let steps = steps(&history);
        for step in &steps {
            let frozen = machine.freeze();
            prop_assert_eq!(frozen.index(), machine.index());
            // Copied while nothing has changed yet.
            kept.push((frozen, machine.records().collect()));
            machine.apply(&step.entry, &mut events);
        }
        for (frozen, records) in &kept {
            prop_assert!(frozen.records().eq(records.iter().cloned()), "at {}", frozen.index());
        }
        if let (Some((frozen, _)), Some(last)) = (kept.last(), steps.last()) {
            // What is restored from it comes to where the machine has come meanwhile.
            let mut restored = StateMachine::restore(frozen.records()).unwrap();
            restored.apply(&last.entry, &mut events);
            equal_states::check(&machine, &restored).map_err(TestCaseError::fail)?;
        }
    }
}
