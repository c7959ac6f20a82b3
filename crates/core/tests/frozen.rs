//! A frozen state stays what it was, whatever is applied to the machine that it was taken from, and
//! answers readers as the machine did.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringfence_core::snapshot::Record;
use ringfence_core::{Frozen, SessionView, StateMachine};
use ringfence_testkit::arbitrary::histories;
use ringfence_testkit::invariants::equal_states;
use ringfence_testkit::run::steps;

/// What is read from a frozen state in pages of one is what the machine answers one by one.
fn same_to_readers(machine: &StateMachine, frozen: &Frozen) -> Result<(), TestCaseError> {
    prop_assert_eq!(frozen.summary(), machine.summary());
    for prefix in ["", "c/"] {
        let all: Vec<_> = frozen.list(prefix, None).collect();
        let held = all.iter().filter(|lease| lease.holder.is_some()).count();
        prop_assert_eq!(frozen.held(prefix), held);
        let mut after = None;
        for lease in &all {
            prop_assert_eq!(machine.get(&lease.name), Some(lease.clone()));
            prop_assert_eq!(frozen.get(&lease.name), Some(lease.clone()));
            prop_assert_eq!(frozen.list(prefix, after).next(), Some(lease.clone()));
            let floor = frozen.floors(prefix, after).next();
            prop_assert!(floor.is_none_or(|(name, _)| name >= lease.name));
            after = Some(lease.name.as_str());
        }
        prop_assert_eq!(frozen.list(prefix, after).count(), 0);
        let floors = all
            .iter()
            .filter_map(|lease| Some((lease.name.clone(), lease.floor?)));
        prop_assert!(frozen.floors(prefix, None).eq(floors));
    }
    let mut pods = 0;
    for session in frozen.sessions(None) {
        let whole = frozen.session(session.session);
        prop_assert_eq!(&whole, &machine.session(session.session));
        let whole = whole.map(|whole| SessionView {
            leases: Vec::new(),
            ..whole
        });
        prop_assert_eq!(whole, Some(session.clone()));
        let next = frozen.sessions(Some(session.session)).next();
        prop_assert!(next.is_none_or(|next| next.session > session.session));
        if let Some(pod) = &session.pod {
            prop_assert!(machine.has_pod(pod.uid()));
            pods += 1;
        }
    }
    prop_assert_eq!(machine.has_pods(), pods > 0);
    // A term of a Lease object may end with a Pod too; its session is bound to none.
    for object in frozen.objects("", None) {
        let term = frozen.object_term(&object.name);
        if let Some(pod) = term.and_then(|term| term.pod.as_ref()) {
            prop_assert!(machine.has_pod(pod.uid()));
            pods += 1;
        }
    }
    prop_assert_eq!(frozen.pods().count(), pods);
    Ok(())
}

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
            same_to_readers(&machine, &kept[kept.len() - 1].0)?;
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
