//! I15: equal entries make equal states, and what is restored from a snapshot is the state it was
//! taken from.

use ringfence_core::StateMachine;
use ringfence_core::snapshot::Record;

/// The machine that the records of `machine` describe.
///
/// # Errors
/// Why they describe none, or where the restored one differs.
pub fn restored(machine: &StateMachine) -> Result<StateMachine, String> {
    let restored = StateMachine::restore(machine.records());
    let restored = restored.map_err(|bad| format!("I15: {bad}"))?;
    check(machine, &restored)?;
    Ok(restored)
}

/// Whether two machines are equal as far as anybody can tell.
///
/// # Errors
/// The first record that differs.
pub fn check(expected: &StateMachine, found: &StateMachine) -> Result<(), String> {
    let mut found_records = found.records();
    let mut expected_records = expected.records();
    loop {
        let pair: (Option<Record>, Option<Record>) =
            (expected_records.next(), found_records.next());
        match pair {
            (None, None) => break,
            (one, other) if one == other => {}
            (one, other) => {
                return Err(format!(
                    "I15: states differ:\nexpected {one:?}\nfound    {other:?}"
                ));
            }
        }
    }
    let (expected, found) = (expected.next_deadline(), found.next_deadline());
    if expected != found {
        return Err(format!(
            "I15: equal states wait for {expected:?} and {found:?}"
        ));
    }
    Ok(())
}
