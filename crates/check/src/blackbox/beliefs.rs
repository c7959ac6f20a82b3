//! I4: what two holders of a lease believe never overlaps in true time, given clocks within the
//! contract's bound. I24: a grant that was reported lost is never again reported held.

use std::collections::{BTreeMap, HashMap};

use super::Told;
use crate::history::{Belief, BeliefEnd, Op, Outcome, RATE_BOUND_PPM};
use crate::recording::Recording;
use crate::verdict::{Report, Rule, Violation};

pub(super) fn check(recording: &Recording, told: &Told, report: &mut Report) {
    resurrected(recording, told, report);
    if recording.header.rate_bound_ppm > RATE_BOUND_PPM {
        report.remarks.push(format!(
            "whether beliefs overlap: clocks may differ by {} ppm, and mutual exclusion is promised \
             up to {RATE_BOUND_PPM}",
            recording.header.rate_bound_ppm
        ));
        return;
    }
    let revoked = revoked_at_once(recording);
    let mut leases: BTreeMap<&str, Vec<&Belief>> = BTreeMap::new();
    for belief in &recording.beliefs {
        leases.entry(&belief.lease).or_default().push(belief);
    }
    for (lease, beliefs) in leases {
        overlaps(lease, beliefs, &revoked, told, report);
    }
}

/// Grants that an operator ended without waiting, and since when.
fn revoked_at_once(recording: &Recording) -> HashMap<(&str, u64), u64> {
    let mut revoked: HashMap<(&str, u64), u64> = HashMap::new();
    for operation in &recording.operations {
        if let Op::Revoke {
            lease,
            token,
            now: true,
        } = &operation.op
            && !matches!(operation.outcome, Outcome::NotDone { .. })
        {
            let since = revoked.entry((lease, *token)).or_insert(operation.begin);
            *since = operation.begin.min(*since);
        }
    }
    revoked
}

fn overlaps(
    lease: &str,
    mut beliefs: Vec<&Belief>,
    revoked: &HashMap<(&str, u64), u64>,
    told: &Told,
    report: &mut Report,
) {
    let until = |belief: &Belief| {
        let revoked = revoked.get(&(lease, belief.token)).copied();
        belief.until.min(revoked.unwrap_or(u64::MAX))
    };
    beliefs.sort_by_key(|belief| (belief.from, belief.token));
    // Those that reach furthest; two, since the furthest may be of the same grant.
    let mut furthest: Option<&Belief> = None;
    let mut other: Option<&Belief> = None;
    for belief in beliefs {
        let conflict = [furthest, other].into_iter().flatten();
        let conflict = conflict
            .filter(|before| before.token != belief.token)
            .find(|before| until(before) > belief.from && until(belief) > belief.from);
        if let Some(before) = conflict {
            report.violated(overlap(before, belief, told));
        }
        match furthest {
            Some(known) if until(known) >= until(belief) => {
                if known.token != belief.token
                    && other.is_none_or(|other| until(other) < until(belief))
                {
                    other = Some(belief);
                }
            }
            known => {
                if known.is_some_and(|known| known.token != belief.token) {
                    other = known;
                }
                furthest = Some(belief);
            }
        }
    }
}

fn overlap(before: &Belief, belief: &Belief, told: &Told) -> Violation {
    Violation {
        rule: Rule::I4,
        t: belief.from,
        lease: Some(belief.lease.clone()),
        operations: Vec::new(),
        what: format!(
            "two believed in lease {} at once: {} and {}",
            belief.lease,
            tell(before, told),
            tell(belief, told)
        ),
    }
}

fn tell(belief: &Belief, told: &Told) -> String {
    format!(
        "client {} in session {} with token {} ({})",
        belief.client,
        belief.session,
        belief.token,
        told.span(belief.from, Some(belief.until))
    )
}

/// Beliefs in a grant that its client had reported lost before.
fn resurrected(recording: &Recording, told: &Told, report: &mut Report) {
    let mut lost: HashMap<(u64, u64), &Belief> = HashMap::new();
    for belief in &recording.beliefs {
        let is_lost = matches!(
            belief.why,
            BeliefEnd::Window | BeliefEnd::Told | BeliefEnd::Refused
        );
        if is_lost {
            let first = lost.entry((belief.session, belief.token)).or_insert(belief);
            if belief.until < first.until {
                *first = belief;
            }
        }
    }
    for belief in &recording.beliefs {
        let Some(first) = lost.get(&(belief.session, belief.token)) else {
            continue;
        };
        if !std::ptr::eq(*first, belief) && belief.until > first.until {
            report.violated(Violation {
                rule: Rule::I24,
                t: belief.from.max(first.until),
                lease: Some(belief.lease.clone()),
                operations: Vec::new(),
                what: format!(
                    "lease {} was reported lost by {}, and held again by {}",
                    belief.lease,
                    tell(first, told),
                    tell(belief, told)
                ),
            });
        }
    }
}
