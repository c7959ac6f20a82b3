//! The suite finds the guards that are wrong, and only those.

use ringfence_guard::conformance::{Rule, Violation};

use crate::mvcc::{Fault, Isolation, Mvcc};

/// Plants the fault at both isolation levels; the suite must name one of its effects.
fn found(fault: Fault, effect: fn(&Rule) -> bool) -> [Box<Violation>; 2] {
    [Isolation::ReadCommitted, Isolation::Snapshot].map(|isolation| {
        let violation = crate::fails(|name| Mvcc::new(name, isolation, fault));
        assert!(
            effect(&violation.rule),
            "{fault:?} at {isolation:?}: {violation}"
        );
        violation
    })
}

fn tokens_decrease(rule: &Rule) -> bool {
    matches!(rule, Rule::TokensDecreased { .. })
}

fn an_update_is_lost(rule: &Rule) -> bool {
    matches!(rule, Rule::WrongDatum { .. })
}

fn somebody_is_wrongly_admitted(rule: &Rule) -> bool {
    matches!(rule, Rule::WronglyAdmitted { .. })
}

#[test]
fn a_store_of_many_versions_with_its_guard_in_order_passes_the_suite() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let report = crate::passes(|name| Mvcc::new(name, isolation, Fault::None));
        assert!(report.blocked > 0, "no step ever met a lock: {report:?}");
    }
}

#[test]
fn an_equal_mark_that_is_read_but_not_written_is_found() {
    let violations = found(Fault::EqualMarkOnlyRead, tokens_decrease);
    for violation in violations {
        // The story is the one that shows it: the old holder is through its check, the new one
        // takes over, the old one commits.
        let steps = violation.story.join("\n");
        let check = steps.find("old Admit: done").unwrap();
        let takeover = steps.find("new Commit: done").unwrap();
        let late = steps.rfind("old Commit: done").unwrap();
        assert!(check < takeover && takeover < late, "{violation}");
    }
}

#[test]
fn a_check_in_a_transaction_of_its_own_is_found() {
    found(Fault::CheckedBeforehand, tokens_decrease);
}

#[test]
fn a_read_before_the_advance_is_found_as_a_lost_update() {
    found(Fault::ReadBeforeAdvance, an_update_is_lost);
}

#[test]
fn an_advance_that_does_nothing_is_found() {
    found(Fault::AdvanceDoesNothing, |rule| {
        tokens_decrease(rule) || somebody_is_wrongly_admitted(rule)
    });
}

#[test]
fn a_mark_that_is_deleted_with_its_data_is_found() {
    found(Fault::MarkDeletedWithData, somebody_is_wrongly_admitted);
}

#[test]
fn a_restore_that_forgets_the_floor_is_found() {
    found(Fault::FloorForgotten, somebody_is_wrongly_admitted);
}

#[test]
fn a_floor_that_lowers_the_mark_is_found() {
    found(Fault::FloorLowersMark, |rule| {
        matches!(
            rule,
            Rule::WrongRefusal { .. } | Rule::WronglyAdmitted { .. }
        )
    });
}

#[test]
fn a_mark_that_is_lost_when_the_store_closes_is_found() {
    found(Fault::MarkNotStored, somebody_is_wrongly_admitted);
}

#[test]
fn a_guard_that_looks_at_the_token_only_is_found() {
    found(Fault::AnyLease, somebody_is_wrongly_admitted);
}

#[test]
fn a_guard_that_believes_any_token_is_found() {
    for violation in found(Fault::NoCeiling, somebody_is_wrongly_admitted) {
        assert!(violation.case.contains("made up"), "{violation}");
    }
}

#[test]
fn a_write_that_passes_without_a_fence_is_found() {
    found(Fault::FenceOptional, somebody_is_wrongly_admitted);
}

#[test]
fn a_guard_that_refuses_its_own_mark_is_found() {
    found(Fault::EqualRefused, |rule| {
        matches!(rule, Rule::RefusedWithoutCause { .. })
    });
}

#[test]
fn a_refused_write_that_stays_is_found() {
    found(Fault::RefusedWriteStays, an_update_is_lost);
}

#[test]
fn a_refusal_that_names_the_wrong_mark_is_found() {
    found(Fault::WrongMarkTold, |rule| {
        matches!(rule, Rule::WrongRefusal { .. })
    });
}

#[test]
fn a_lock_that_is_never_released_is_found() {
    found(Fault::LockKept, |rule| *rule == Rule::Stuck);
}
