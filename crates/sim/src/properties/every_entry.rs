//! What must hold after each single entry, checked over the log of the whole cluster by those who
//! know the records of the state: I2, I3, I7 to I13, I16, I20, I21, I24, I37 to I41, I43 and
//! E1 to E3.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence_core::StateMachine;
use ringfence_testkit::invariants::{Checkers, Step};
use ringfence_testkit::view::View;

use super::Property;
use crate::observe::{Applied, At, Observation, Violation};

pub(super) struct EveryEntry {
    checkers: Checkers,
    view: Arc<View>,
    /// The newest entry that was checked.
    index: u64,
    /// Entries that were applied somewhere before all those in front of them were.
    ahead: BTreeMap<u64, Option<Arc<Applied>>>,
}

impl Default for EveryEntry {
    fn default() -> Self {
        Self {
            checkers: Checkers::default(),
            view: Arc::new(View::of(&StateMachine::new())),
            index: 0,
            ahead: BTreeMap::new(),
        }
    }
}

impl Property for EveryEntry {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) if applied.first => {
                let entry = Some(Arc::clone(applied));
                self.ahead.insert(applied.entry.index, entry);
            }
            Observation::Skipped { index, .. } if *index > self.index => {
                self.ahead.entry(*index).or_insert(None);
            }
            _ => return Ok(()),
        }
        while let Some((next, _)) = self.ahead.first_key_value()
            && *next == self.index + 1
            && let Some((index, entry)) = self.ahead.pop_first()
        {
            self.index = index;
            if let Some(applied) = entry {
                self.check(&applied)?;
            }
        }
        Ok(())
    }
}

impl EveryEntry {
    fn check(&mut self, applied: &Applied) -> Result<(), Violation> {
        let Some(after) = &applied.after else {
            return Ok(());
        };
        let step = Step {
            before: std::mem::replace(&mut self.view, after.clone()),
            entry: applied.entry.clone(),
            outcome: applied.outcome.clone(),
            events: applied.events.clone(),
            after: after.clone(),
        };
        let checked = self.checkers.check(&step);
        checked.map_err(|violation| Violation::of(violation.invariant, violation.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::{ClusterTime, Command, Entry, WallTime};

    use super::super::scene::broken;
    use super::*;

    #[test]
    fn a_state_in_which_time_went_back_is_noticed() {
        let mut machine = StateMachine::new();
        let mut property = EveryEntry::default();
        let mut entry = Entry {
            index: 1,
            term: 1,
            time: ClusterTime(5),
            wall: WallTime(0),
            command: Command::TermStart { unix_seconds: None },
        };
        let mut see = |machine: &mut StateMachine, entry: &Entry, forge: bool| {
            let mut events = Vec::new();
            let outcome = machine.apply(entry, &mut events);
            let mut after = View::of(machine);
            if forge {
                after.header.term = 0;
            }
            let applied = Applied {
                node: 0,
                first: true,
                entry: entry.clone(),
                outcome,
                events,
                digest: None,
                after: Some(Arc::new(after)),
            };
            property.see(At::ZERO, &Observation::Applied(Arc::new(applied)))
        };
        see(&mut machine, &entry, false).unwrap();
        entry.index = 2;
        entry.command = Command::Tick;
        broken(see(&mut machine, &entry, true), "I16");
    }
}
