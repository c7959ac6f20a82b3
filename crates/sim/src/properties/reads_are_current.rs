//! I6: a read stands behind everything that was acknowledged before it was asked for, and says what
//! the log says at the index that it names. That operations fit together at all is the checkers'
//! business, behind the run.

use std::collections::BTreeMap;

use ringfence_check::history::{Checked, Op, Outcome, Returned};
use ringfence_core::Event;

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct ReadsAreCurrent {
    /// Each change of a lease's holder: the index, and the session and token from there on.
    leases: BTreeMap<String, Vec<Change>>,
    /// The greatest token granted up to an index, where it rises.
    greatest: Vec<(u64, u64)>,
    /// The newest entry of which any client learned.
    acknowledged: u64,
    /// Reads under way, and what was acknowledged before them.
    reads: BTreeMap<u64, (Op, u64)>,
}

#[derive(Clone, Copy)]
struct Change {
    index: u64,
    held: Option<(u64, u64)>,
    /// The newest token of the lease.
    newest: u64,
}

impl Property for ReadsAreCurrent {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) if applied.first => {
                for event in &applied.events {
                    self.change(applied.entry.index, event);
                }
            }
            Observation::Asked(asked) => {
                if matches!(asked.op, Op::Check { .. } | Op::Get { .. }) {
                    let read = (asked.op.clone(), self.acknowledged);
                    self.reads.insert(asked.id, read);
                }
            }
            Observation::Answered(answered) => {
                if let Some((op, before)) = self.reads.remove(&answered.id) {
                    self.read(&op, before, answered)
                        .map_err(|why| Violation::of("I6", why))?;
                }
                let index = answered.index.unwrap_or_default();
                self.acknowledged = self.acknowledged.max(index);
            }
            _ => {}
        }
        Ok(())
    }
}

impl ReadsAreCurrent {
    fn change(&mut self, index: u64, event: &Event) {
        let (name, held, token) = match event {
            Event::Granted(granted) => {
                let token = granted.token.get();
                self.greatest.push((index, token));
                (&granted.name, Some((granted.session.get(), token)), token)
            }
            Event::Ended { name, token, .. } => (name, None, token.get()),
            _ => return,
        };
        let changes = self.leases.entry(name.to_string()).or_default();
        changes.push(Change {
            index,
            held,
            newest: token,
        });
    }

    fn read(&self, op: &Op, before: u64, answered: &Returned) -> Result<(), String> {
        let Some(index) = answered.index else {
            return Ok(());
        };
        let outcome = &answered.outcome;
        if index < before {
            return Err(format!(
                "{op:?} was answered at {index}, and {before} was acknowledged before: {outcome:?}"
            ));
        }
        let right = match (op, outcome) {
            (Op::Check { lease, token }, Outcome::Checked(checked)) => {
                self.is_worth(lease, *token, *checked, index)
            }
            (Op::Get { lease }, Outcome::Lease { session, token, .. }) => {
                let held = self.at(lease, index).and_then(|change| change.held);
                held == session.zip(*token)
            }
            _ => true,
        };
        if right {
            return Ok(());
        }
        let held = match op {
            Op::Check { lease, .. } | Op::Get { lease } => self.at(lease, index),
            _ => None,
        };
        let held = held.map(|change| (change.index, change.held, change.newest));
        Err(format!(
            "{op:?} at {index}: {outcome:?}, the log says {held:?}"
        ))
    }

    fn is_worth(&self, lease: &str, token: u64, checked: Checked, index: u64) -> bool {
        let last = self.at(lease, index);
        let current = last.and_then(|change| change.held);
        let current = current.is_some_and(|(_, held)| held == token);
        let known = self.greatest.partition_point(|(at, _)| *at <= index);
        let greatest = known.checked_sub(1).map_or(0, |at| self.greatest[at].1);
        match checked {
            Checked::Current => current,
            Checked::Superseded(newest) => {
                newest > token && last.is_some_and(|change| change.newest == newest)
            }
            Checked::Ended => !current && token <= greatest,
            Checked::Unknown => token > greatest,
        }
    }

    /// How the lease stood behind the entry at `index`.
    fn at(&self, lease: &str, index: u64) -> Option<Change> {
        let changes = self.leases.get(lease)?;
        let known = changes.partition_point(|change| change.index <= index);
        changes.get(known.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, acquire_op, broken};
    use super::*;

    fn scene() -> Scene<ReadsAreCurrent> {
        let mut scene = Scene::of(ReadsAreCurrent::default());
        scene.ask(1, 1, 1, acquire_op("a")).unwrap();
        scene.grant("a", 1, 5, 1).unwrap();
        scene.answer(1, Outcome::Granted { token: 5 }).unwrap();
        scene
    }

    fn check(token: u64) -> Op {
        Op::Check {
            lease: "a".into(),
            token,
        }
    }

    #[test]
    fn a_read_behind_what_was_acknowledged_is_noticed() {
        let mut scene = scene();
        scene.ask(2, 1, 2, check(5)).unwrap();
        scene.index -= 1;
        broken(scene.answer(2, Outcome::Checked(Checked::Unknown)), "I6");
    }

    #[test]
    fn a_wrong_verdict_is_noticed() {
        let mut scene = scene();
        scene.ask(2, 1, 2, check(5)).unwrap();
        scene.answer(2, Outcome::Checked(Checked::Current)).unwrap();
        scene.release("a", 1, 5, 2).unwrap();
        scene.grant("a", 2, 6, 1).unwrap();
        for (id, token, right, wrong) in [
            (3, 5, Checked::Superseded(6), Checked::Current),
            (4, 6, Checked::Current, Checked::Ended),
            (5, 7, Checked::Unknown, Checked::Ended),
        ] {
            scene.ask(id, 1, id, check(token)).unwrap();
            scene.answer(id, Outcome::Checked(right)).unwrap();
            scene.ask(id, 1, id, check(token)).unwrap();
            broken(scene.answer(id, Outcome::Checked(wrong)), "I6");
        }
    }

    #[test]
    fn a_wrong_holder_is_noticed() {
        let mut scene = scene();
        scene.ask(2, 1, 2, Op::Get { lease: "a".into() }).unwrap();
        let nobody = Outcome::Lease {
            session: None,
            token: None,
            waiters: None,
        };
        broken(scene.answer(2, nobody), "I6");
    }
}
