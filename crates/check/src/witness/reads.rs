//! I6, the part that leaves no trace in the log: each read shows the state at an index at which it
//! can have been taken.

use super::order::Order;
use super::replay::{Replay, Since};
use crate::blackbox::Told;
use crate::history::{Checked, Op, Outcome};
use crate::recording::{Operation, Recording};
use crate::verdict::{Report, Rule, Violation};

const FREE: Since = Since {
    index: 0,
    holder: None,
    floor: 0,
};

pub(super) fn check(
    recording: &Recording,
    replay: &Replay,
    order: &Order,
    told: &Told,
    report: &mut Report,
) {
    let mut reads = 0;
    for operation in &recording.operations {
        let (Op::Check { lease, .. } | Op::Get { lease }) = &operation.op else {
            continue;
        };
        let Some(end) = operation.end else { continue };
        let (from, before) = order.window(operation.begin, end);
        let states = replay.leases.get(lease.as_str());
        let states = states.map_or(&[][..], Vec::as_slice);
        let first = states.partition_point(|since| since.index <= from);
        let first_state = first.checked_sub(1).map_or(FREE, |at| states[at]);
        let rest = states[first..]
            .iter()
            .take_while(|since| since.index < before);
        let mut possible = std::iter::once(&first_state).chain(rest);
        reads += 1;
        // The smallest there can have been: the greatest token only grows.
        let at = replay.greatest.partition_point(|&(since, _)| since <= from);
        let greatest = at.checked_sub(1).map_or(0, |at| replay.greatest[at].1);
        if possible.any(|state| shows(operation, state, greatest)) {
            continue;
        }
        let what = format!(
            "{} shows what was not so at any index from {from}{}; at {from} {}",
            told.operation(operation),
            match before {
                u64::MAX => " on".to_owned(),
                before => format!(" to {}", before - 1),
            },
            match first_state.holder {
                None => "no session held it".to_owned(),
                Some((session, token)) => format!("session {session} held it with token {token}"),
            }
        );
        report.violated(Violation {
            rule: Rule::I6,
            t: end,
            lease: Some(lease.clone()),
            operations: vec![operation.id],
            what,
        });
    }
    report.looked_at.push(("reads", reads));
}

fn shows(operation: &Operation, state: &Since, greatest: u64) -> bool {
    let current = state.holder.map(|(_, token)| token);
    match (&operation.op, &operation.outcome) {
        (Op::Check { token, .. }, Outcome::Checked(checked)) => match checked {
            Checked::Current => current == Some(*token),
            Checked::Superseded(newest) => state.floor == *newest && newest > token,
            Checked::Ended => current != Some(*token),
            Checked::Unknown => greatest < *token,
        },
        (Op::Get { .. }, Outcome::Lease { session, token, .. }) => match (token, session) {
            (None, None) => state.holder.is_none(),
            (token, session) => state.holder.is_some_and(|holder| {
                token.is_none_or(|token| token == holder.1)
                    && session.is_none_or(|session| session == holder.0)
            }),
        },
        _ => true,
    }
}
