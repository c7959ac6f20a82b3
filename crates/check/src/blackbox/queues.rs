//! I12: waiting is first in, first out. A session that learned that it stands in the queue before
//! another asked comes before that other, unless the lease was handed to the other by name.

use std::collections::{BTreeMap, HashSet};

use super::Told;
use crate::history::{Acquire, Op, Outcome};
use crate::lives::{Lives, ROUNDING_NS};
use crate::recording::{Operation, Recording};
use crate::verdict::{Report, Rule, Violation};

/// An acquire that was answered with a grant.
#[derive(Clone, Copy)]
struct Served<'a> {
    token: u64,
    operation: &'a Operation,
}

/// An acquire that stood in the queue until its wait was over.
#[derive(Clone, Copy)]
struct Unserved<'a> {
    /// When its client knew that it stands there.
    queued: u64,
    /// Until when it stood there at least.
    until: u64,
    operation: &'a Operation,
}

#[derive(Default)]
struct Queue<'a> {
    served: Vec<Served<'a>>,
    unserved: Vec<Unserved<'a>>,
}

pub(super) fn check(recording: &Recording, lives: &Lives, told: &Told, report: &mut Report) {
    let mut queues: BTreeMap<&str, Queue<'_>> = BTreeMap::new();
    let mut by_name: HashSet<(&str, u64)> = HashSet::new();
    for operation in &recording.operations {
        match (&operation.op, &operation.outcome) {
            (Op::Acquire(ask), outcome) => {
                let queue = queues.entry(&ask.lease).or_default();
                take(queue, operation, ask, outcome, lives);
            }
            (
                Op::Open {
                    acquire: Some(ask), ..
                },
                Outcome::Opened {
                    acquired: Some(outcome),
                    ..
                },
            ) => {
                let queue = queues.entry(&ask.lease).or_default();
                take(queue, operation, ask, outcome, lives);
            }
            (
                Op::Transfer {
                    lease,
                    to: Some(to),
                    ..
                },
                outcome,
            ) if !matches!(outcome, Outcome::NotDone { .. }) => {
                by_name.insert((lease, *to));
            }
            _ => {}
        }
    }
    for (lease, queue) in queues {
        overtaken(lease, &queue, &by_name, told, report);
        passed_over(lease, &queue, &by_name, told, report);
    }
}

fn take<'a>(
    queue: &mut Queue<'a>,
    operation: &'a Operation,
    ask: &Acquire,
    outcome: &Outcome,
    lives: &Lives,
) {
    match *outcome {
        Outcome::Granted { token } | Outcome::Ended { token } => {
            queue.served.push(Served { token, operation });
        }
        Outcome::TimedOut => {
            let (Some(queued), Some(wait)) = (operation.queued, ask.wait_ms) else {
                return;
            };
            let wait = lives.ttl_ns(wait).saturating_sub(ROUNDING_NS);
            let until = operation.begin.saturating_add(wait);
            queue.unserved.push(Unserved {
                queued,
                until,
                operation,
            });
        }
        _ => {}
    }
}

fn handed_by_name(served: Served<'_>, lease: &str, by_name: &HashSet<(&str, u64)>) -> bool {
    let session = match served.operation.outcome {
        Outcome::Opened { session, .. } => Some(session),
        _ => served.operation.session,
    };
    session.is_some_and(|session| by_name.contains(&(lease, session)))
}

/// A session was granted the lease before another who had stood in the queue before it asked.
fn overtaken(
    lease: &str,
    queue: &Queue<'_>,
    by_name: &HashSet<(&str, u64)>,
    told: &Told,
    report: &mut Report,
) {
    let mut waited: Vec<(u64, Served<'_>)> = Vec::new();
    for &served in &queue.served {
        waited.extend(served.operation.queued.map(|queued| (queued, served)));
    }
    waited.sort_by_key(|&(queued, _)| queued);
    let mut next = 0;
    let mut latest: Option<(u64, Served<'_>)> = None;
    // In the order in which they began.
    for &served in &queue.served {
        while let Some(&(queued, earlier)) = waited.get(next)
            && queued < served.operation.begin
        {
            if latest.is_none_or(|(_, known)| known.token < earlier.token) {
                latest = Some((queued, earlier));
            }
            next += 1;
        }
        let Some((queued, earlier)) = latest.filter(|(_, earlier)| earlier.token > served.token)
        else {
            continue;
        };
        if !handed_by_name(served, lease, by_name) {
            report.violated(Violation {
                rule: Rule::I12,
                t: served.operation.end.unwrap_or(served.operation.begin),
                lease: Some(lease.to_owned()),
                operations: vec![earlier.operation.id, served.operation.id],
                what: format!(
                    "{} was granted lease {lease} first, although it asked only when another had \
                     been notified at {} that it waits: {}",
                    told.operation(served.operation),
                    told.time(queued),
                    told.operation(earlier.operation)
                ),
            });
        }
    }
}

/// A session asked for the lease and was granted it while another stood in the queue.
fn passed_over(
    lease: &str,
    queue: &Queue<'_>,
    by_name: &HashSet<(&str, u64)>,
    told: &Told,
    report: &mut Report,
) {
    for unserved in &queue.unserved {
        let from = queue
            .served
            .partition_point(|s| s.operation.begin <= unserved.queued);
        let within = queue.served[from..].iter();
        let within = within.take_while(|served| served.operation.begin < unserved.until);
        let jumped = within
            .filter(|served| served.operation.end.is_some_and(|end| end < unserved.until))
            .find(|served| !handed_by_name(**served, lease, by_name));
        if let Some(served) = jumped {
            report.violated(Violation {
                rule: Rule::I12,
                t: unserved.until,
                lease: Some(lease.to_owned()),
                operations: vec![unserved.operation.id, served.operation.id],
                what: format!(
                    "{} waited for lease {lease} in vain until {} at least, and was passed over by {}",
                    told.operation(unserved.operation),
                    told.time(unserved.until),
                    told.operation(served.operation)
                ),
            });
        }
    }
}
