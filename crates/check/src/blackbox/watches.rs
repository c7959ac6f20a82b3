//! I14: each watch tells in the order of the log, nothing twice and without a gap, also after a break;
//! and watches tell the same.

use std::collections::{BTreeMap, HashMap};

use super::Told;
use crate::history::{Acquire, Op, Outcome, WatchEvent, WatchKind, WatchStarted};
use crate::recording::{Operation, Recording, Watched};
use crate::verdict::{Report, Rule, Violation};

/// An index and a place among the events of that entry.
pub(crate) type Position = (u64, u32);

/// What one watch reported between two breaks.
pub(crate) struct Stretch<'a> {
    pub(crate) watcher: u32,
    pub(crate) prefix: &'a str,
    /// Everything after this was to be reported.
    pub(crate) after: Position,
    /// Everything up to this was reported.
    pub(crate) upto: Position,
    pub(crate) events: Vec<&'a WatchEvent>,
}

pub(super) fn check(recording: &Recording, told: &Told, report: &mut Report) {
    let stretches = stretches(recording, told, report);
    let mut all: BTreeMap<Position, &WatchEvent> = BTreeMap::new();
    for stretch in &stretches {
        for &event in &stretch.events {
            let known = *all.entry((event.index, event.n)).or_insert(event);
            if !same(known, event) {
                let what = format!(
                    "watches disagree: {} and {}",
                    tell(known, told),
                    tell(event, told)
                );
                report.violated(violation(event.t, &event.lease, what));
            }
        }
    }
    let granted = granted(recording);
    for stretch in &stretches {
        gaps(stretch, &all, told, report);
        grants_take_turns(stretch, told, report);
        acknowledged_is_told(stretch, &granted, told, report);
    }
}

fn violation(t: u64, lease: &str, what: String) -> Violation {
    Violation {
        rule: Rule::I14,
        t,
        lease: Some(lease.to_owned()),
        operations: Vec::new(),
        what,
    }
}

fn tell(event: &WatchEvent, told: &Told) -> String {
    let kind = match event.kind {
        WatchKind::Granted => "the grant".to_owned(),
        WatchKind::Ended(cause) => format!("the end ({cause:?})").to_lowercase(),
    };
    format!(
        "{kind} of lease {} with token {}, which watch {} reported at {} as event {} of entry {}",
        event.lease,
        event.token,
        event.watcher,
        told.time(event.t),
        event.n,
        event.index
    )
}

fn same(a: &WatchEvent, b: &WatchEvent) -> bool {
    let agree = |a: Option<u64>, b: Option<u64>| a.zip(b).is_none_or(|(a, b)| a == b);
    (a.kind, &a.lease, a.token) == (b.kind, &b.lease, b.token) && agree(a.session, b.session)
}

/// Cuts what each watch reported at its breaks, and checks its order on the way.
pub(crate) fn stretches<'a>(
    recording: &'a Recording,
    told: &Told,
    report: &mut Report,
) -> Vec<Stretch<'a>> {
    let mut open: HashMap<u32, Option<Stretch<'a>>> = HashMap::new();
    let mut begun: HashMap<u32, &WatchStarted> = HashMap::new();
    let mut done = Vec::new();
    for watched in &recording.watched {
        match watched {
            Watched::Started(started) => {
                begun.insert(started.watcher, started);
                let first = started.after.map(|after| stretch(started, after));
                done.extend(open.insert(started.watcher, first).flatten());
            }
            Watched::Event(event) => {
                let at = (event.index, event.n);
                let Some(&started) = begun.get(&event.watcher) else {
                    let what = format!("{}, but that watch never began", tell(event, told));
                    report.violated(violation(event.t, &event.lease, what));
                    continue;
                };
                let now = open.entry(event.watcher).or_default();
                // Without a position it begins with the first that it tells.
                let now = now.get_or_insert_with(|| stretch(started, before(at)));
                if at <= now.upto {
                    let what = format!(
                        "{} comes after the watch had reported everything up to event {} of entry {}",
                        tell(event, told),
                        now.upto.1,
                        now.upto.0
                    );
                    report.violated(violation(event.t, &event.lease, what));
                } else {
                    now.upto = at;
                    now.events.push(event);
                }
                if !event.lease.starts_with(now.prefix) {
                    let what = format!(
                        "{} is not what was watched: `{}`",
                        tell(event, told),
                        now.prefix
                    );
                    report.violated(violation(event.t, &event.lease, what));
                }
            }
            Watched::Progress(progress) => {
                let Some(&started) = begun.get(&progress.watcher) else {
                    continue;
                };
                let at = (progress.index, u32::MAX);
                let now = open.entry(progress.watcher).or_default();
                let now = now.get_or_insert_with(|| stretch(started, at));
                now.upto = now.upto.max(at);
            }
        }
    }
    done.extend(open.into_values().flatten());
    done.sort_by_key(|stretch| (stretch.watcher, stretch.after));
    done
}

fn stretch(started: &WatchStarted, after: Position) -> Stretch<'_> {
    Stretch {
        watcher: started.watcher,
        prefix: &started.prefix,
        after,
        upto: after,
        events: Vec::new(),
    }
}

fn before((index, n): Position) -> Position {
    (index, n.saturating_sub(1))
}

/// What other watches reported, and this one had to.
fn gaps(
    stretch: &Stretch<'_>,
    all: &BTreeMap<Position, &WatchEvent>,
    told: &Told,
    report: &mut Report,
) {
    if stretch.after >= stretch.upto {
        return;
    }
    let mut own = stretch.events.iter().peekable();
    let range = (
        std::ops::Bound::Excluded(stretch.after),
        std::ops::Bound::Included(stretch.upto),
    );
    for (&position, event) in all.range(range) {
        let told_it = own.next_if(|own| (own.index, own.n) == position).is_some();
        if !told_it && event.lease.starts_with(stretch.prefix) {
            let what = format!("watch {} left out {}", stretch.watcher, tell(event, told));
            report.violated(violation(event.t, &event.lease, what));
        }
    }
}

/// Between two grants of a lease the first one ends, and their tokens rise.
fn grants_take_turns(stretch: &Stretch<'_>, told: &Told, report: &mut Report) {
    let mut last: HashMap<&str, &WatchEvent> = HashMap::new();
    for &event in &stretch.events {
        let Some(before) = last.insert(&event.lease, event) else {
            continue;
        };
        let fits = match (before.kind, event.kind) {
            (WatchKind::Granted, WatchKind::Ended(_)) => before.token == event.token,
            (WatchKind::Ended(_), WatchKind::Granted) => before.token < event.token,
            _ => false,
        };
        if !fits {
            let what = format!(
                "{} cannot be the next of that lease after {}",
                tell(event, told),
                tell(before, told)
            );
            report.violated(violation(event.t, &event.lease, what));
        }
    }
}

/// Tokens that were acknowledged, by lease and rising.
fn granted(recording: &Recording) -> HashMap<&str, Vec<(u64, &Operation)>> {
    let mut granted: HashMap<&str, Vec<(u64, &Operation)>> = HashMap::new();
    for operation in &recording.operations {
        let (lease, outcome) = match (&operation.op, &operation.outcome) {
            (Op::Acquire(Acquire { lease, .. }), outcome) => (lease, outcome),
            (
                Op::Open {
                    acquire: Some(ask), ..
                },
                Outcome::Opened {
                    acquired: Some(acquired),
                    ..
                },
            ) => (&ask.lease, &**acquired),
            (Op::Transfer { lease, .. }, outcome) => (lease, outcome),
            _ => continue,
        };
        if let Outcome::Granted { token }
        | Outcome::Ended { token }
        | Outcome::Transferred { token, .. } = *outcome
        {
            granted.entry(lease).or_default().push((token, operation));
        }
    }
    for tokens in granted.values_mut() {
        tokens.sort_unstable_by_key(|&(token, _)| token);
    }
    granted
}

/// Between the first and the last token that a watch reported of a lease, it reported each.
fn acknowledged_is_told(
    stretch: &Stretch<'_>,
    granted: &HashMap<&str, Vec<(u64, &Operation)>>,
    told: &Told,
    report: &mut Report,
) {
    let mut seen: HashMap<&str, Vec<u64>> = HashMap::new();
    for event in &stretch.events {
        if event.kind == WatchKind::Granted {
            seen.entry(&event.lease).or_default().push(event.token);
        }
    }
    for (lease, mut tokens) in seen {
        tokens.sort_unstable();
        let (Some(&first), Some(&last)) = (tokens.first(), tokens.last()) else {
            continue;
        };
        let granted = granted.get(lease).map_or(&[][..], Vec::as_slice);
        let from = granted.partition_point(|&(token, _)| token < first);
        for &(token, operation) in granted[from..].iter().take_while(|(t, _)| *t <= last) {
            if tokens.binary_search(&token).is_err() {
                let what = format!(
                    "watch {} reported tokens {first} to {last} of lease {lease}, and left out \
                     token {token}: {}",
                    stretch.watcher,
                    told.operation(operation)
                );
                let mut violation = violation(operation.begin, lease, what);
                violation.operations = vec![operation.id];
                report.violated(violation);
            }
        }
    }
}
