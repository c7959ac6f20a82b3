//! Plays a history on the state machine and on the model, and checks everything after each entry.

use std::fmt::Debug;

use ringfence_core::snapshot::{Header, Record};
use ringfence_core::{Entry, Event, Millis, Outcome, StateMachine};

use crate::arbitrary::{Act, History, Move, Pace, Resolver};
use crate::model::Model;
use crate::view::View;

/// For how long a cluster keeps quiet when a history asks for it.
const QUIET: Millis = Millis(3_000);

/// Plays `history` and says at which entry what went wrong.
///
/// # Errors
/// The first difference or violation, with all entries up to it.
pub fn play(history: &History) -> Result<(), String> {
    let mut run = Run::new();
    let told = |run: &Run, wrong: String| {
        let entries: Vec<String> = run.entries.iter().map(|e| format!("{e:?}\n")).collect();
        format!("{wrong}\nafter the entries\n{}", entries.concat())
    };
    let opening = [
        Act::TermStart {
            later: 1,
            unix_seconds: Some(3),
        },
        Act::Form {
            limits: history.limits,
            floor: history.floor,
        },
    ];
    for act in opening {
        run.step(&Move {
            pace: Pace::Still,
            stray: false,
            act,
        })
        .map_err(|wrong| told(&run, wrong))?;
    }
    if history.quiet {
        run.keep_quiet().map_err(|wrong| told(&run, wrong))?;
    }
    for (at, next) in history.moves.iter().enumerate() {
        if at == history.restore_after {
            run.cut().map_err(|wrong| told(&run, wrong))?;
        }
        run.step(next).map_err(|wrong| told(&run, wrong))?;
    }
    Ok(())
}

/// The machines of a run.
struct Run {
    machine: StateMachine,
    model: Model,
    /// Restored from its own snapshot after every entry.
    restored: StateMachine,
    /// Restored once, somewhere on the way.
    cut: Option<StateMachine>,
    resolver: Resolver,
    view: View,
    entries: Vec<Entry>,
}

impl Run {
    fn new() -> Self {
        let machine = StateMachine::new();
        Self {
            view: View::of(&machine),
            restored: machine.clone(),
            machine,
            model: Model::new(),
            cut: None,
            resolver: Resolver::default(),
            entries: Vec::new(),
        }
    }

    fn step(&mut self, next: &Move) -> Result<(), String> {
        let entry = self.resolver.resolve(next, &self.view);
        self.entries.push(entry.clone());
        let expected = self.model.apply(&entry);
        let found = apply(&mut self.machine, &entry);
        same("the outcome", &expected.0, &found.0)?;
        same("the events", &expected.1, &found.1)?;
        let again = apply(&mut self.restored, &entry);
        same("what the restored machine does", &found, &again)?;
        self.restored = restored(&self.restored)?;
        same_state(&self.machine, &self.restored)?;
        if let Some(cut) = &mut self.cut {
            let again = apply(cut, &entry);
            same("what the machine restored once does", &found, &again)?;
            same_state(&self.machine, cut)?;
        }
        self.view = View::of(&self.machine);
        Ok(())
    }

    fn cut(&mut self) -> Result<(), String> {
        self.cut = Some(restored(&self.machine)?);
        Ok(())
    }

    /// There is no command for it: a restored snapshot begins so.
    fn keep_quiet(&mut self) -> Result<(), String> {
        let until = self.view.time().after(QUIET);
        self.model.keep_quiet(until);
        let machines = [&mut self.machine, &mut self.restored];
        for machine in machines.into_iter().chain(&mut self.cut) {
            let quiet = machine.records().map(|record| match record {
                Record::Header(header) => Record::Header(Header {
                    quiet_until: until,
                    ..header
                }),
                other => other,
            });
            let records: Vec<Record> = quiet.collect();
            *machine = StateMachine::restore(records).map_err(|bad| bad.to_string())?;
        }
        self.view = View::of(&self.machine);
        Ok(())
    }
}

fn restored(machine: &StateMachine) -> Result<StateMachine, String> {
    StateMachine::restore(machine.records()).map_err(|bad| bad.to_string())
}

fn same_state(expected: &StateMachine, found: &StateMachine) -> Result<(), String> {
    let expected_records: Vec<Record> = expected.records().collect();
    let found_records: Vec<Record> = found.records().collect();
    same("the restored state", &expected_records, &found_records)?;
    let (expected, found) = (expected.next_deadline(), found.next_deadline());
    same("the restored machine's next deadline", &expected, &found)
}

fn apply(machine: &mut StateMachine, entry: &Entry) -> (Outcome, Vec<Event>) {
    let mut events = Vec::new();
    let outcome = machine.apply(entry, &mut events);
    (outcome, events)
}

fn same<T: PartialEq + Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!(
        "{what} differs:\nexpected {expected:?}\nfound    {found:?}"
    ))
}
