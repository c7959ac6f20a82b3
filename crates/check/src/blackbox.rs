//! The first checker: it looks at what clients saw, and at nothing else.
//!
//! Operations are split by lease, and for each lease a search looks for an order of them that a lease
//! could have gone through (`spec.rs`) and that agrees with the times. Beside the search, each promise
//! that is about more than one lease, or about more than operations, is checked in a file of its own.
//!
//! The history must hold every operation on the leases that it names, but for reads: what a client
//! did who is not in it looks as if it came from nowhere.

mod beliefs;
mod coverage;
mod ends;
mod guards;
mod partition;
mod queues;
mod search;
mod spec;
mod tokens;
mod watches;

use crate::lives::Lives;
use crate::recording::{Contradiction, Operation, Recording};
use crate::verdict::{Report, Rule, Violation};

pub use coverage::coverage;
pub(crate) use watches::stretches;

/// How many states the search for one lease may look at; a history of a correct service needs a
/// few per operation.
pub const STATES_MAX: u64 = 50_000_000;

/// How long a search may go on.
#[derive(Clone, Copy)]
pub struct Caps<'a> {
    /// States per lease, [`STATES_MAX`] unless set otherwise.
    pub states: u64,
    /// Whether the time that the caller has is over; asked now and then.
    pub out_of_time: &'a dyn Fn() -> bool,
}

impl Default for Caps<'_> {
    fn default() -> Self {
        Self {
            states: STATES_MAX,
            out_of_time: &|| false,
        }
    }
}

/// Checks what clients saw.
///
/// A search that reaches a cap leaves its lease unknown; that is never taken for valid.
#[must_use]
pub fn check(recording: &Recording, caps: Caps<'_>) -> Report {
    let mut report = Report::default();
    let lives = Lives::of(recording);
    let told = Told::of(recording);
    for contradiction in &recording.contradictions {
        report.violated(two_answers(contradiction, &told));
    }
    linearizability(recording, &lives, caps, &mut report);
    tokens::check(recording, &told, &mut report);
    guards::check(recording, &told, &mut report);
    beliefs::check(recording, &told, &mut report);
    ends::check(recording, &lives, &told, &mut report);
    queues::check(recording, &lives, &told, &mut report);
    watches::check(recording, &told, &mut report);
    report.looked_at.extend([
        ("operations", recording.operations.len() as u64),
        ("keep-alives", recording.keep_alives.len() as u64),
        ("beliefs", recording.beliefs.len() as u64),
        ("visits at guards", recording.guards.len() as u64),
        ("messages of watches", recording.watched.len() as u64),
    ]);
    report.finish()
}

fn linearizability(recording: &Recording, lives: &Lives, caps: Caps<'_>, report: &mut Report) {
    let partition = partition::Partition::of(recording, lives);
    report
        .looked_at
        .push(("leases", partition.leases.len() as u64));
    let mut states = 0;
    for lease in &partition.leases {
        for token in &lease.from_nowhere {
            report.violated(token.violation(recording, &lease.name));
        }
        if !lease.from_nowhere.is_empty() {
            continue;
        }
        let found = search::search(lease, caps);
        states += found.states;
        match found.end {
            search::End::Linearizable => {}
            search::End::Stuck(stuck) => {
                report.violated(stuck.violation(recording, lease));
            }
            search::End::States => report.unknowns.push(format!(
                "the search for lease {} was given up after {} states, the limit",
                lease.name, caps.states
            )),
            search::End::Time => report.unknowns.push(format!(
                "the search for lease {} was given up when the time was over",
                lease.name
            )),
        }
    }
    report.looked_at.push(("states", states));
}

fn two_answers(contradiction: &Contradiction, told: &Told) -> Violation {
    let Contradiction { first, second } = contradiction;
    Violation {
        rule: Rule::I5,
        t: first.end.max(second.end).unwrap_or_default(),
        lease: None,
        operations: vec![first.id, second.id],
        what: format!(
            "one request has two answers: {} and {}",
            told.operation(first),
            told.operation(second)
        ),
    }
}

/// Tells times and operations to people.
pub(crate) struct Told {
    origin: u64,
}

impl Told {
    pub(crate) fn of(recording: &Recording) -> Self {
        Self {
            origin: recording.origin(),
        }
    }

    /// Seconds since the first time of the history.
    pub(crate) fn time(&self, t: u64) -> String {
        let since = t.saturating_sub(self.origin);
        format!(
            "{}.{:06} s",
            since / 1_000_000_000,
            since / 1_000 % 1_000_000
        )
    }

    pub(crate) fn span(&self, begin: u64, end: Option<u64>) -> String {
        match end {
            Some(end) => format!("{} to {}", self.time(begin), self.time(end)),
            None => format!("{}, never answered", self.time(begin)),
        }
    }

    pub(crate) fn operation(&self, operation: &Operation) -> String {
        let mut text = format!("operation {} of client {}", operation.id, operation.client);
        if let Some(session) = operation.session {
            text += &format!(" in session {session}");
        }
        let asked = serde_json::to_string(&operation.op).unwrap_or_default();
        let answered = serde_json::to_string(&operation.outcome).unwrap_or_default();
        let span = self.span(operation.begin, operation.end);
        text + &format!(", {asked} answered {answered} ({span})")
    }
}
