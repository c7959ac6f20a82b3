//! Finds each operation in the log, and holds its answer against the replayed one.

use ringfence_core::{EndCause, LeaseName};

use super::answers::agree;
use super::replay::{At, Replay};
use crate::blackbox::Told;
use crate::history::{Acquire, Op, Outcome};
use crate::recording::{Operation, Recording};
use crate::verdict::{Report, Rule, Violation};

/// Where an operation stands in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The entry that first carried it.
    pub(super) first: u64,
    /// The entry that gave the answer that its client received.
    pub(super) answered: u64,
}

pub(super) struct Matched {
    /// For each operation of the recording.
    pub(super) places: Vec<Option<Place>>,
    pub(super) found: u64,
}

/// What the log says of an operation.
enum Found {
    At(Place),
    /// The answer fits although no entry carries the operation, or nothing can be said.
    Fits,
    /// No entry carries what was acknowledged.
    Missing,
    /// Entries carry it, and answer otherwise.
    Otherwise(Vec<At>),
    /// It was said not to be done, and this entry did it.
    Done(u64),
}

pub(super) fn check(
    recording: &Recording,
    replay: &Replay,
    told: &Told,
    report: &mut Report,
) -> Matched {
    let mut places = Vec::with_capacity(recording.operations.len());
    let mut found = 0;
    let mut not_identified = 0_u64;
    for operation in &recording.operations {
        let place = match find(operation, replay) {
            Found::At(place) => {
                found += 1;
                report
                    .violations
                    .extend(wrong_index(operation, place, told));
                Some(place)
            }
            Found::Fits => {
                let reads = matches!(operation.op, Op::Check { .. } | Op::Get { .. });
                not_identified += u64::from(!reads && operation.end.is_some());
                None
            }
            other => {
                report
                    .violations
                    .extend(contradiction(operation, &other, told));
                None
            }
        };
        places.push(place);
    }
    if not_identified > 0 {
        report.remarks.push(format!(
            "{not_identified} answered operations that no entry can be held against: refusals \
             without a request number, and answers that need no entry"
        ));
    }
    Matched { places, found }
}

fn find(operation: &Operation, replay: &Replay) -> Found {
    match (&operation.op, operation.session) {
        (
            Op::Open {
                open_id, acquire, ..
            },
            _,
        ) => open(operation, open_id.as_deref(), acquire.as_ref(), replay),
        (Op::Close, Some(session)) => {
            let entries = replay.closes.get(&session);
            ended(operation, session, entries, replay)
        }
        (Op::Evict { session }, _) => {
            let entries = replay.evicts.get(session);
            ended(operation, *session, entries, replay)
        }
        (Op::Revoke { lease, token, .. }, _) => revoke(operation, lease, *token, replay),
        (Op::Check { .. } | Op::Get { .. }, _) => Found::Fits,
        (_, Some(session)) => match operation.request {
            Some(number) => request(operation, session, number, replay),
            None => by_token(operation, session, replay),
        },
        (_, None) => Found::Fits,
    }
}

fn request(operation: &Operation, session: u64, number: u64, replay: &Replay) -> Found {
    let told = &operation.outcome;
    let asked = replay.requests.get(&(session, number));
    let answers = asked.map_or(&[][..], |asked| asked.answers.as_slice());
    if let Outcome::Unknown { .. } = told {
        return Found::Fits;
    }
    if let Outcome::NotDone { .. } = told {
        let done = answers.iter().find(|(_, answer)| has_effect(answer));
        return done.map_or(Found::Fits, |&(index, _)| Found::Done(index));
    }
    let Some(&(first, _)) = answers.first() else {
        return match told {
            Outcome::SessionExpired if replay.ended.contains_key(&session) => Found::Fits,
            // Taken back before it came, or refused before it was logged.
            Outcome::Cancelled | Outcome::Refused { .. } => Found::Fits,
            _ => Found::Missing,
        };
    };
    let by_entry = answers.iter().find(|(_, answer)| agree(told, answer));
    let by_entry = by_entry.map(|&(answered, _)| answered);
    // Who waits is known from an event, perhaps before a repeated request is logged.
    let by_event = match told {
        Outcome::Ended { token } => {
            let grant = replay.grants.get(token);
            let grant = grant.filter(|grant| (grant.session, grant.request) == (session, number));
            grant
                .and_then(|grant| grant.end.as_ref())
                .map(|&(index, _)| index)
        }
        Outcome::SessionExpired | Outcome::Cancelled => replay.ended.get(&session).copied(),
        _ => None,
    };
    match [by_entry, by_event].into_iter().flatten().min() {
        Some(answered) => Found::At(Place {
            first,
            answered: answered.max(first),
        }),
        None if is_of_this_try(told) => Found::Fits,
        None => Found::Otherwise(answers.to_vec()),
    }
}

/// Whether the answer may be one that nothing remembers: a caller is not heard for who it is.
fn is_of_this_try(told: &Outcome) -> bool {
    matches!(told, Outcome::Refused { reason }
        if reason == "PERMISSION_DENIED" || reason == "UNAUTHENTICATED")
}

/// Whether the answer tells of a change.
fn has_effect(answer: &Outcome) -> bool {
    matches!(
        answer,
        Outcome::Granted { .. }
            | Outcome::Released
            | Outcome::Transferred { .. }
            | Outcome::Queued { waiters: None }
            | Outcome::Removed
    )
}

/// An operation whose number is not known is found by the token that it reported.
fn by_token(operation: &Operation, session: u64, replay: &Replay) -> Found {
    let at = |index| {
        Found::At(Place {
            first: index,
            answered: index,
        })
    };
    match (&operation.op, &operation.outcome) {
        (
            Op::Acquire(Acquire { lease, .. }),
            Outcome::Granted { token } | Outcome::Ended { token },
        ) => match replay.grants.get(token) {
            Some(grant) if grant.session == session && grant.lease.as_str() == lease => {
                let mut answers = replay.requests.get(&(session, grant.request));
                let first = answers.take().and_then(|asked| asked.answers.first());
                Found::At(Place {
                    first: first.map_or(grant.index, |&(first, _)| first),
                    answered: grant.index,
                })
            }
            _ => Found::Missing,
        },
        (Op::Release { token, .. }, Outcome::Released) => {
            let grant = replay.grants.get(token);
            let grant = grant.filter(|grant| grant.session == session);
            match grant.and_then(|grant| grant.end.as_ref()) {
                Some(&(index, EndCause::Released)) => at(index),
                _ => Found::Missing,
            }
        }
        (Op::Transfer { token, .. }, Outcome::Transferred { to, token: new }) => {
            let given = replay
                .grants
                .get(token)
                .and_then(|grant| grant.end.as_ref());
            let taken = replay.grants.get(new).filter(|grant| grant.session == *to);
            match (given, taken) {
                (Some(&(index, EndCause::Transferred { .. })), Some(grant))
                    if grant.index == index =>
                {
                    at(index)
                }
                _ => Found::Missing,
            }
        }
        (_, Outcome::SessionExpired) if !replay.ended.contains_key(&session) => Found::Missing,
        _ => Found::Fits,
    }
}

fn open(
    operation: &Operation,
    open_id: Option<&str>,
    acquire: Option<&Acquire>,
    replay: &Replay,
) -> Found {
    let Outcome::Opened {
        session,
        ttl_ms,
        acquired,
    } = &operation.outcome
    else {
        let opened = open_id.and_then(|id| replay.open_ids.get(id));
        let opened = opened.and_then(|session| replay.opened.get(session));
        return match (&operation.outcome, opened) {
            (Outcome::NotDone { .. }, Some(opened)) => Found::Done(opened.index),
            _ => Found::Fits,
        };
    };
    let Some(opened) = replay.opened.get(session) else {
        return Found::Missing;
    };
    let same_id = open_id.is_none_or(|id| replay.open_ids.get(id) == Some(session));
    let first = opened.index;
    if !same_id || opened.ttl_ms != *ttl_ms || opened.acquires != acquire.is_some() {
        let answer = Outcome::Opened {
            session: *session,
            ttl_ms: opened.ttl_ms,
            acquired: None,
        };
        return Found::Otherwise(vec![(first, answer)]);
    }
    let answered = match acquired.as_deref() {
        None | Some(Outcome::Unknown { .. }) => first,
        Some(acquired) => {
            let asked = replay.requests.get(&(*session, 1));
            let answers = asked.map_or(&[][..], |asked| asked.answers.as_slice());
            match answers.iter().find(|(_, answer)| agree(acquired, answer)) {
                Some(&(answered, _)) => answered,
                None => return Found::Otherwise(answers.to_vec()),
            }
        }
    };
    Found::At(Place { first, answered })
}

/// An operation that ends a session: of its own entries it is unknown which is whose.
fn ended(
    operation: &Operation,
    session: u64,
    entries: Option<&Vec<u64>>,
    replay: &Replay,
) -> Found {
    let entries = entries.map_or(&[][..], Vec::as_slice);
    match operation.outcome {
        Outcome::Closed | Outcome::Done => match entries {
            [] => Found::Missing,
            &[index] => Found::At(Place {
                first: index,
                answered: index,
            }),
            _ => Found::Fits,
        },
        Outcome::SessionExpired if !replay.ended.contains_key(&session) => Found::Missing,
        Outcome::NotDone { .. } => entries.first().map_or(Found::Fits, |&at| Found::Done(at)),
        _ => Found::Fits,
    }
}

fn revoke(operation: &Operation, lease: &str, token: u64, replay: &Replay) -> Found {
    let name = LeaseName::parse(lease).ok();
    let answers = name.and_then(|name| replay.revokes.get(&(name, token)));
    let answers = answers.map_or(&[][..], Vec::as_slice);
    let fitting = answers
        .iter()
        .filter(|(_, answer)| agree(&operation.outcome, answer));
    let fitting: Vec<u64> = fitting.map(|&(index, _)| index).collect();
    // A repeated revoke is answered as the first one was: of several the answer names one, or no
    // client can tell which it was.
    let named = operation.index.filter(|index| fitting.contains(index));
    let fits = match (named, fitting.as_slice()) {
        (Some(index), _) => Some(index),
        (None, []) => None,
        (None, [_, _, ..]) if operation.index.is_none() => return Found::Fits,
        // One that reports another place is held against this one.
        (None, &[index, ..]) => Some(index),
    };
    match (&operation.outcome, answers, fits) {
        (Outcome::Done, [], _) => Found::Missing,
        (Outcome::Done, _, Some(index)) => Found::At(Place {
            first: index,
            answered: index,
        }),
        (Outcome::Done, answers, None) => Found::Otherwise(answers.to_vec()),
        (Outcome::StaleToken { .. }, answers, None) if !answers.is_empty() => {
            Found::Otherwise(answers.to_vec())
        }
        _ => Found::Fits,
    }
}

fn contradiction(operation: &Operation, found: &Found, told: &Told) -> Option<Violation> {
    let (rule, why) = match found {
        Found::At(_) | Found::Fits => return None,
        Found::Missing => (Rule::I5, "it is not in the log".to_owned()),
        Found::Done(index) => (Rule::I19, format!("entry {index} did it")),
        Found::Otherwise(answers) => {
            let mut why = "by the log it was answered".to_owned();
            for (index, answer) in answers.iter().take(4) {
                let answer = match answer {
                    Outcome::Queued { waiters: None } => "\"waiting\"".to_owned(),
                    answer => serde_json::to_string(answer).unwrap_or_default(),
                };
                why += &format!(" {answer} at entry {index},");
            }
            (Rule::I5, why.trim_end_matches(',').to_owned())
        }
    };
    Some(Violation {
        rule,
        t: operation.end.unwrap_or(operation.begin),
        lease: None,
        operations: vec![operation.id],
        what: format!("{}: {why}", told.operation(operation)),
    })
}

fn wrong_index(operation: &Operation, place: Place, told: &Told) -> Option<Violation> {
    let index = operation.index?;
    (index < place.first).then(|| Violation {
        rule: Rule::I5,
        t: operation.end.unwrap_or(operation.begin),
        lease: None,
        operations: vec![operation.id],
        what: format!(
            "{} learned that entry {index} answers it, and its first entry is {}",
            told.operation(operation),
            place.first
        ),
    })
}
