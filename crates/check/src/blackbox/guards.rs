//! I1: in the order of its commits, a guard admits tokens that never fall. I23: it refuses no token
//! that is not below its mark.

use std::collections::BTreeMap;

use super::Told;
use crate::history::{Admission, Guard, GuardAct};
use crate::recording::Recording;
use crate::verdict::{Report, Rule, Violation};

pub(super) fn check(recording: &Recording, told: &Told, report: &mut Report) {
    let mut marks: BTreeMap<(&str, &str), Vec<&Guard>> = BTreeMap::new();
    let mut unguarded = 0_u64;
    for guard in &recording.guards {
        if !guard.guarded {
            unguarded += 1;
            continue;
        }
        if let Admission::Refused { mark } = guard.admission
            && mark <= guard.token
        {
            report.violated(Violation {
                rule: Rule::I23,
                t: guard.end,
                lease: Some(guard.lease.clone()),
                operations: Vec::new(),
                what: format!(
                    "{} was refused although the mark was only {mark}",
                    tell(guard, told)
                ),
            });
        }
        // Reads need no admission.
        if guard.admission == Admission::Admitted && guard.act != GuardAct::Read {
            let admitted = marks.entry((&guard.store, &guard.lease)).or_default();
            admitted.push(guard);
        }
    }
    for admitted in marks.values_mut() {
        by_commits(admitted, told, report);
        by_time(admitted, told, report);
    }
    if unguarded > 0 {
        report.remarks.push(format!(
            "{unguarded} visits at stores without a guard, of which nothing is promised"
        ));
    }
}

/// Where the store counted its commits, their order is known.
fn by_commits(admitted: &[&Guard], told: &Told, report: &mut Report) {
    let mut counted: Vec<&Guard> = admitted.to_vec();
    counted.retain(|guard| guard.commit.is_some());
    counted.sort_by_key(|guard| guard.commit);
    let mut greatest: Option<&Guard> = None;
    for guard in counted {
        match greatest {
            Some(before) if before.token > guard.token => {
                report.violated(falls(before, guard, told));
            }
            _ => greatest = Some(guard),
        }
    }
}

/// Else one commit was before another only if it was answered before the other was asked for.
fn by_time(admitted: &mut [&Guard], told: &Told, report: &mut Report) {
    admitted.sort_by_key(|guard| guard.begin);
    let mut answered: Vec<&Guard> = admitted.to_vec();
    answered.sort_by_key(|guard| guard.end);
    let mut next = 0;
    let mut greatest: Option<&Guard> = None;
    for &guard in admitted.iter() {
        while let Some(&before) = answered.get(next)
            && before.end < guard.begin
        {
            if greatest.is_none_or(|known| known.token < before.token) {
                greatest = Some(before);
            }
            next += 1;
        }
        let Some(before) = greatest.filter(|before| before.token > guard.token) else {
            continue;
        };
        // What the commits show was said already.
        if before.commit.is_none() || guard.commit.is_none() || before.commit > guard.commit {
            report.violated(falls(before, guard, told));
        }
    }
}

fn falls(before: &Guard, guard: &Guard, told: &Told) -> Violation {
    Violation {
        rule: Rule::I1,
        t: guard.end,
        lease: Some(guard.lease.clone()),
        operations: Vec::new(),
        what: format!(
            "{} was admitted after {}",
            tell(guard, told),
            tell(before, told)
        ),
    }
}

fn tell(guard: &Guard, told: &Told) -> String {
    let act = match guard.act {
        GuardAct::Advance => "an advance",
        GuardAct::Read => "a read",
        GuardAct::Write => "a write",
    };
    let commit = guard.commit.map(|commit| format!(", commit {commit}"));
    format!(
        "{act} of client {} with token {} of lease {} at store {} ({}{})",
        guard.client,
        guard.token,
        guard.lease,
        guard.store,
        told.span(guard.begin, Some(guard.end)),
        commit.unwrap_or_default()
    )
}
