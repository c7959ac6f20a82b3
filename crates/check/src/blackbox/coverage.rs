//! Whether a history shows enough to be worth a verdict. A run in which nothing succeeded breaks no
//! promise.

use std::collections::BTreeMap;

use crate::history::{Admission, Checked, GuardAct, Op, Outcome};
use crate::recording::{Operation, Recording};

/// What the history does not show although a good run does: each kind of operation that was tried
/// succeeded at least once, leases were granted, and, if there are guards, a stale write was
/// refused by one.
#[must_use]
pub fn coverage(recording: &Recording) -> Vec<String> {
    let mut kinds: BTreeMap<&'static str, bool> = BTreeMap::new();
    kinds.insert("acquire", false);
    for operation in &recording.operations {
        let (kind, succeeded) = judge(operation);
        *kinds.entry(kind).or_default() |= succeeded;
        if let (
            Op::Open {
                acquire: Some(_), ..
            },
            Outcome::Opened { acquired, .. },
        ) = (&operation.op, &operation.outcome)
        {
            let granted = matches!(acquired.as_deref(), Some(Outcome::Granted { .. }));
            *kinds.entry("acquire").or_default() |= granted;
        }
    }
    let failed = kinds.iter().filter(|(_, succeeded)| !**succeeded);
    let mut missing: Vec<String> = failed
        .map(|(kind, _)| format!("no operation of the kind `{kind}` succeeded"))
        .collect();

    let guarded = recording.guards.iter().filter(|guard| guard.guarded);
    let writes: Vec<_> = guarded
        .filter(|guard| guard.act == GuardAct::Write)
        .collect();
    let refused = |admission: Admission| matches!(admission, Admission::Refused { .. });
    if !writes.is_empty() && !writes.iter().any(|write| refused(write.admission)) {
        missing.push("no stale write was refused, so no guard was put to the test".to_owned());
    }
    if !writes.is_empty()
        && !writes
            .iter()
            .any(|write| write.admission == Admission::Admitted)
    {
        missing.push("no write was admitted".to_owned());
    }
    for fault in recording.faults.iter().filter(|fault| fault.effects == 0) {
        missing.push(format!(
            "nothing shows that the fault `{}` on {} had any effect",
            fault.kind, fault.target
        ));
    }
    missing
}

/// The operation's kind, and whether it did what was asked.
fn judge(operation: &Operation) -> (&'static str, bool) {
    let outcome = &operation.outcome;
    match operation.op {
        Op::Open { .. } => ("open", matches!(outcome, Outcome::Opened { .. })),
        Op::Acquire(_) => ("acquire", matches!(outcome, Outcome::Granted { .. })),
        Op::Cancel { .. } => (
            "cancel",
            matches!(
                outcome,
                Outcome::Removed
                    | Outcome::StillGranted { .. }
                    | Outcome::Settled
                    | Outcome::Voided
            ),
        ),
        Op::Release { .. } => ("release", *outcome == Outcome::Released),
        Op::Transfer { .. } => ("transfer", matches!(outcome, Outcome::Transferred { .. })),
        Op::Close => ("close", *outcome == Outcome::Closed),
        Op::Check { .. } => ("check", *outcome == Outcome::Checked(Checked::Current)),
        Op::Get { .. } => (
            "get",
            matches!(outcome, Outcome::Lease { token: Some(_), .. }),
        ),
        Op::Revoke { .. } => ("revoke", *outcome == Outcome::Done),
        Op::Evict { .. } => ("evict", matches!(outcome, Outcome::Closed | Outcome::Done)),
    }
}
