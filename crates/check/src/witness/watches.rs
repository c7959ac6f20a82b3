//! I14: what a watch reported is what the log says, all of it and in its order.

use super::replay::{Replay, Told as Logged};
use crate::blackbox::{Told, stretches};
use crate::history::WatchEvent;
use crate::recording::Recording;
use crate::verdict::{Report, Rule, Violation};

pub(super) fn check(recording: &Recording, replay: &Replay, told: &Told, report: &mut Report) {
    // Its order is the other checker's subject; what it says of it is not wanted here.
    let mut elsewhere = Report::default();
    for stretch in stretches(recording, told, &mut elsewhere) {
        let position = |event: &Logged| (event.index, event.n);
        let from = replay
            .events
            .partition_point(|event| position(event) <= stretch.after);
        let upto = replay
            .events
            .partition_point(|event| position(event) <= stretch.upto);
        let logged = replay.events.get(from..upto).unwrap_or_default();
        let mut logged = logged
            .iter()
            .filter(|event| event.lease.as_str().starts_with(stretch.prefix))
            .peekable();
        for &event in &stretch.events {
            while let Some(left_out) = logged.next_if(|l| position(l) < (event.index, event.n)) {
                report.violated(gap(stretch.watcher, event.t, left_out));
            }
            let same = logged.next_if(|logged| position(logged) == (event.index, event.n));
            if !same.is_some_and(|logged| is(logged, event)) {
                report.violated(Violation {
                    rule: Rule::I14,
                    t: event.t,
                    lease: Some(event.lease.clone()),
                    operations: Vec::new(),
                    what: format!(
                        "watch {} reported at {} token {} of lease {} as event {} of entry {}, and \
                         the log {}",
                        event.watcher,
                        told.time(event.t),
                        event.token,
                        event.lease,
                        event.n,
                        event.index,
                        same.map_or("has no such event".to_owned(), tell)
                    ),
                });
            }
        }
        let t = stretch.events.last().map_or(0, |event| event.t);
        for left_out in logged {
            report.violated(gap(stretch.watcher, t, left_out));
        }
    }
}

fn is(logged: &Logged, event: &WatchEvent) -> bool {
    logged.kind == event.kind
        && logged.lease.as_str() == event.lease
        && logged.token == event.token
        && event
            .session
            .is_none_or(|session| session == logged.session)
}

fn tell(logged: &Logged) -> String {
    format!(
        "has there {:?} of token {} of lease {}",
        logged.kind, logged.token, logged.lease
    )
}

fn gap(watcher: u32, t: u64, left_out: &Logged) -> Violation {
    Violation {
        rule: Rule::I14,
        t,
        lease: Some(left_out.lease.as_str().to_owned()),
        operations: Vec::new(),
        what: format!(
            "watch {watcher} left out event {} of entry {}: the log {}",
            left_out.n,
            left_out.index,
            tell(left_out)
        ),
    }
}
