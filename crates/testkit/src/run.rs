//! Plays a history on the state machine and on the model, and checks everything after each entry.

use std::fmt::Debug;
use std::sync::Arc;

use ringfence_core::snapshot::{Header, Record};
use ringfence_core::{Entry, Event, Millis, ObjectView, Outcome, StateMachine};

use crate::arbitrary::{Act, By, History, Move, Pace, Resolver};
use crate::invariants::{Checkers, Step, equal_states};
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
    run.play(history).map_err(|wrong| {
        let entries = run.steps.iter().map(|step| &step.entry);
        let entries: Vec<String> = entries.map(|entry| format!("{entry:?}\n")).collect();
        format!("{wrong}\nafter the entries\n{}", entries.concat())
    })
}

/// What each entry of `history` did.
///
/// # Panics
/// If something goes wrong on the way, see [`play`].
#[must_use]
pub fn steps(history: &History) -> Vec<Step> {
    let mut run = Run::new();
    if let Err(wrong) = run.play(history) {
        panic!("{wrong}");
    }
    run.steps
}

/// A cluster is formed, and then the crowd comes.
fn opening(history: &History) -> (Vec<Move>, Vec<Move>) {
    let at_once = |act| Move {
        pace: Pace::Still,
        stray: false,
        by: By::Owner,
        act,
    };
    let form = [
        Act::TermStart {
            later: 1,
            unix_seconds: Some(3),
        },
        Act::Form {
            limits: history.limits,
            floor: history.floor,
            past: history.past.clone(),
        },
        Act::RaiseLevel(history.level),
    ];
    let parts = history.past.iter().flat_map(|past| &past.held);
    let seeds = (0..).zip(parts).map(|(part, held)| Act::Seed {
        part,
        held: held.clone(),
    });
    let rights = (!history.rights.is_empty()).then(|| Act::ChangeAccess {
        stale: false,
        foreign: false,
        changes: history.rights.clone(),
    });
    let crowd = (0..history.crowd).map(|at| Act::Open {
        id: 200 + at,
        forged: false,
        seen_ago: None,
        ttl: 20_000,
        acquire: None,
    });
    (
        form.into_iter()
            .chain(seeds)
            .chain(rights)
            .map(at_once)
            .collect(),
        crowd.map(at_once).collect(),
    )
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
    view: Arc<View>,
    checkers: Checkers,
    steps: Vec<Step>,
}

impl Run {
    fn new() -> Self {
        let machine = StateMachine::new();
        Self {
            view: Arc::new(View::of(&machine)),
            restored: machine.clone(),
            machine,
            model: Model::new(),
            cut: None,
            checkers: Checkers::default(),
            resolver: Resolver::default(),
            steps: Vec::new(),
        }
    }

    fn play(&mut self, history: &History) -> Result<(), String> {
        let (form, crowd) = opening(history);
        form.iter().try_for_each(|next| self.step(next))?;
        // No machine keeps quiet before it is formed.
        if history.quiet && self.machine.cluster().is_some() {
            self.keep_quiet()?;
        }
        crowd.iter().try_for_each(|next| self.step(next))?;
        for (at, next) in history.moves.iter().enumerate() {
            if at == history.restore_after {
                self.cut = Some(equal_states::restored(&self.machine)?);
            }
            self.step(next)?;
        }
        Ok(())
    }

    fn step(&mut self, next: &Move) -> Result<(), String> {
        let entry = self.resolver.resolve(next, &self.view);
        let expected = self.model.apply(&entry);
        let (outcome, events) = apply(&mut self.machine, &entry);
        let after = Arc::new(View::of(&self.machine));
        self.steps.push(Step {
            before: std::mem::replace(&mut self.view, after.clone()),
            entry,
            outcome,
            events,
            after,
        });
        let step = &self.steps[self.steps.len() - 1];
        same("the outcome", &expected.0, &step.outcome)?;
        same("the events", &expected.1, &step.events)?;
        same(
            "the summary",
            &self.model.summary(),
            &self.machine.summary(),
        )?;
        let objects: Vec<ObjectView> = self.machine.objects("", None).collect();
        same("the objects", &self.model.objects().collect(), &objects)?;
        let gone: Vec<_> = self.machine.objects_gone_after(0).collect();
        same("those gone", &self.model.gone_objects().collect(), &gone)?;
        let newest = (
            self.machine.objects_version(),
            self.machine.objects_forgotten(),
        );
        same("the versions", &self.model.versions(), &newest)?;
        same("the lead", &self.model.lead(), &self.machine.lead())?;
        let checked = self.checkers.check(step);
        checked.map_err(|violation| violation.to_string())?;

        let found = (step.outcome.clone(), step.events.clone());
        let again = apply(&mut self.restored, &step.entry);
        same("what the restored machine does", &found, &again)?;
        self.restored = equal_states::restored(&self.restored)?;
        equal_states::check(&self.machine, &self.restored)?;
        if let Some(cut) = &mut self.cut {
            let again = apply(cut, &step.entry);
            same("what the machine restored once does", &found, &again)?;
            equal_states::check(&self.machine, cut)?;
        }
        Ok(())
    }

    /// As a restored snapshot begins: the level of the history may not know the command for it.
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
        self.view = Arc::new(View::of(&self.machine));
        Ok(())
    }
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
