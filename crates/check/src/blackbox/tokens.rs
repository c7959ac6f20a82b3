//! I2: tokens are unique, over all leases, and an acknowledged grant's token is smaller than that of
//! every grant made for an acquire that was invoked later.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::Told;
use crate::history::{Acquire, Op, Outcome, WatchKind};
use crate::recording::{Operation, Recording, Watched};
use crate::verdict::{Report, Rule, Violation};

/// The greatest token: it fits in a signed 64-bit column.
const TOKEN_MAX: u64 = (1 << 63) - 1;

/// A client learned of a grant.
#[derive(Clone, Copy)]
struct Sighting<'a> {
    token: u64,
    lease: &'a str,
    session: Option<u64>,
    /// The request that was answered with it, if it is the answer to one.
    request: Option<u64>,
    operation: Option<&'a Operation>,
    t: u64,
}

pub(super) fn check(recording: &Recording, told: &Told, report: &mut Report) {
    let mut known: HashMap<u64, Sighting<'_>> = HashMap::new();
    for sighting in sightings(recording) {
        let token = sighting.token;
        if token == 0 || token > TOKEN_MAX {
            let what = format!(
                "token {token} is outside 1 to 2^63 − 1: {}",
                tell(sighting, told)
            );
            report.violated(violation(&[sighting], what));
        }
        match known.entry(token) {
            Entry::Vacant(place) => drop(place.insert(sighting)),
            Entry::Occupied(mut place) => {
                let first = place.get_mut();
                if !same_grant(*first, sighting) {
                    let (a, b) = (tell(*first, told), tell(sighting, told));
                    let what = format!("token {token} was given twice: {a}; and {b}");
                    report.violated(violation(&[*first, sighting], what));
                }
                first.session = first.session.or(sighting.session);
                first.request = first.request.or(sighting.request);
            }
        }
    }
    later_is_greater(recording, told, report);
}

fn same_grant(a: Sighting<'_>, b: Sighting<'_>) -> bool {
    let agree = |a: Option<u64>, b: Option<u64>| a.zip(b).is_none_or(|(a, b)| a == b);
    a.lease == b.lease && agree(a.session, b.session) && agree(a.request, b.request)
}

fn violation(sightings: &[Sighting<'_>], what: String) -> Violation {
    let operations = sightings.iter().filter_map(|sighting| sighting.operation);
    Violation {
        rule: Rule::I2,
        t: sightings
            .iter()
            .map(|sighting| sighting.t)
            .max()
            .unwrap_or_default(),
        lease: sightings.last().map(|sighting| sighting.lease.to_owned()),
        operations: operations.map(|operation| operation.id).collect(),
        what,
    }
}

fn tell(sighting: Sighting<'_>, told: &Told) -> String {
    match sighting.operation {
        Some(operation) => told.operation(operation),
        None => format!(
            "a watch reported it on lease {} at {}",
            sighting.lease,
            told.time(sighting.t)
        ),
    }
}

/// All clients that learned of a grant.
fn sightings(recording: &Recording) -> impl Iterator<Item = Sighting<'_>> {
    let operations = recording.operations.iter().flat_map(of_operation);
    let watched = recording
        .watched
        .iter()
        .filter_map(|watched| match watched {
            Watched::Event(event) if event.kind == WatchKind::Granted => Some(Sighting {
                token: event.token,
                lease: &event.lease,
                session: event.session,
                request: None,
                operation: None,
                t: event.t,
            }),
            _ => None,
        });
    operations.chain(watched)
}

/// What an operation learned of grants: its own, and others'.
fn of_operation(operation: &Operation) -> Vec<Sighting<'_>> {
    let t = operation.end.unwrap_or(operation.begin);
    let sighting = |token, lease, session, request| Sighting {
        token,
        lease,
        session,
        request,
        operation: Some(operation),
        t,
    };
    if let Some(answered) = answered(operation) {
        return vec![sighting(
            answered.token,
            &answered.ask.lease,
            answered.session,
            answered.request,
        )];
    }
    match (&operation.op, &operation.outcome) {
        (Op::Acquire(Acquire { lease, .. }), Outcome::Held { session, token, .. }) => {
            vec![sighting(*token, lease, Some(*session), None)]
        }
        (Op::Transfer { lease, .. }, Outcome::Transferred { to, token }) => {
            vec![sighting(*token, lease, Some(*to), None)]
        }
        (
            Op::Get { lease },
            Outcome::Lease {
                session,
                token: Some(token),
                ..
            },
        ) => {
            vec![sighting(*token, lease, *session, None)]
        }
        (Op::Release { lease, token, .. }, Outcome::Released) => {
            vec![sighting(*token, lease, operation.session, None)]
        }
        _ => Vec::new(),
    }
}

/// A grant as the answer to the one who asked for it.
struct Answered<'a> {
    token: u64,
    ask: &'a Acquire,
    session: Option<u64>,
    request: Option<u64>,
}

fn answered(operation: &Operation) -> Option<Answered<'_>> {
    let (ask, outcome, session, request) = match (&operation.op, &operation.outcome) {
        (Op::Acquire(ask), outcome) => (ask, outcome, operation.session, operation.request),
        (
            Op::Open {
                acquire: Some(ask), ..
            },
            Outcome::Opened {
                session,
                acquired: Some(acquired),
                ..
            },
        ) => (ask, &**acquired, Some(*session), Some(1)),
        _ => return None,
    };
    let (Outcome::Granted { token } | Outcome::Ended { token }) = *outcome else {
        return None;
    };
    Some(Answered {
        token,
        ask,
        session,
        request,
    })
}

/// A grant that was acknowledged before another was asked for has the smaller token.
fn later_is_greater(recording: &Recording, told: &Told, report: &mut Report) {
    let mut acknowledged: Vec<(u64, u64, &Operation)> = Vec::new();
    for operation in &recording.operations {
        let token = match operation.outcome {
            Outcome::Transferred { token, .. } => Some(token),
            _ => answered(operation).map(|answered| answered.token),
        };
        if let (Some(token), Some(end)) = (token, operation.end) {
            acknowledged.push((end, token, operation));
        }
    }
    acknowledged.sort_unstable_by_key(|&(end, token, _)| (end, token));
    let mut next = 0;
    let mut greatest: Option<(u64, &Operation)> = None;
    // In the order in which they began.
    for operation in &recording.operations {
        while let Some(&(end, token, earlier)) = acknowledged.get(next)
            && end < operation.begin
        {
            if greatest.is_none_or(|(known, _)| known < token) {
                greatest = Some((token, earlier));
            }
            next += 1;
        }
        let (Some(answered), Some((greater, earlier))) = (answered(operation), greatest) else {
            continue;
        };
        if answered.token <= greater {
            report.violated(Violation {
                rule: Rule::I2,
                t: operation.end.unwrap_or(operation.begin),
                lease: Some(answered.ask.lease.clone()),
                operations: vec![earlier.id, operation.id],
                what: format!(
                    "token {} is not greater than {greater}, which had been acknowledged before it \
                     was asked for: {}; and then {}",
                    answered.token,
                    told.operation(earlier),
                    told.operation(operation)
                ),
            });
        }
    }
}
