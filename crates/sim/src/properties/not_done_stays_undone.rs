//! I19: "not done" is never followed by the effect, nor is a refusal by a grant.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_check::history::Outcome;
use ringfence_core::{Command, Event, Outcome as Said, Rejection};

use super::Property;
use crate::observe::{Applied, At, Observation, Violation};

/// Session and number of a request.
type Request = (u64, u64);

#[derive(Default)]
pub(super) struct NotDoneStaysUndone {
    tries: BTreeMap<u64, Request>,
    /// How many tries of a request may still take effect.
    open: BTreeMap<Request, u64>,
    /// Requests of which some try was said to be not done.
    undone: BTreeSet<Request>,
    /// Requests whose answer was a refusal.
    refused: BTreeSet<Request>,
    /// Requests that were seen in the log.
    logged: BTreeSet<Request>,
}

impl Property for NotDoneStaysUndone {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let wrong = match seen {
            Observation::Applied(applied) if applied.first => self.entry(applied),
            Observation::Asked(asked) => {
                if let Some(request) = asked.session.zip(asked.request) {
                    self.tries.insert(asked.id, request);
                    *self.open.entry(request).or_default() += 1;
                }
                Ok(())
            }
            Observation::Answered(answered) => self.answer(answered.id, &answered.outcome),
            _ => Ok(()),
        };
        wrong.map_err(|why| Violation::of("I19", why))
    }
}

impl NotDoneStaysUndone {
    fn entry(&mut self, applied: &Applied) -> Result<(), String> {
        for event in &applied.events {
            if let Event::Granted(granted) = event {
                let request = (granted.session.get(), granted.request.get());
                if self.refused.contains(&request) {
                    return Err(format!("{request:?} was refused, and granted: {granted:?}"));
                }
            }
        }
        // An entry of a term that is not open yet has no effect, and says so; nor has that of a
        // caller that is not heard.
        let without_effect = matches!(
            applied.outcome,
            Said::Rejected(
                Rejection::NotReady
                    | Rejection::WrongSecret
                    | Rejection::OtherPrincipal
                    | Rejection::Banned { .. }
                    | Rejection::TokenRevoked { .. }
            )
        );
        if let Command::Request(asked) = applied.entry.command.bare()
            && !without_effect
        {
            let request = (asked.session.get(), asked.number.get());
            self.logged.insert(request);
            return self.judge(request);
        }
        Ok(())
    }

    fn answer(&mut self, id: u64, outcome: &Outcome) -> Result<(), String> {
        let Some(request) = self.tries.remove(&id) else {
            return Ok(());
        };
        match outcome {
            // It may still come.
            Outcome::Unknown { .. } => return Ok(()),
            Outcome::NotDone { .. } => {
                let open = self.open.entry(request).or_default();
                *open = open.saturating_sub(1);
                self.undone.insert(request);
                return self.judge(request);
            }
            Outcome::Held { .. }
            | Outcome::Queued { .. }
            | Outcome::Blocked(_)
            | Outcome::TimedOut
            | Outcome::Cancelled => drop(self.refused.insert(request)),
            _ => {}
        }
        Ok(())
    }

    /// A request all of whose tries were not done cannot stand in the log.
    fn judge(&self, request: Request) -> Result<(), String> {
        let open = self.open.get(&request).is_none_or(|open| *open > 0);
        if !open && self.undone.contains(&request) && self.logged.contains(&request) {
            return Err(format!(
                "{request:?} was said to be not done, and was logged"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, acquire_op, broken, granted_event};
    use super::*;

    fn not_done() -> Outcome {
        let error = String::new();
        Outcome::NotDone { error }
    }

    fn scene() -> Scene<NotDoneStaysUndone> {
        let mut scene = Scene::of(NotDoneStaysUndone::default());
        scene.ask(1, 1, 1, acquire_op("a")).unwrap();
        scene
    }

    #[test]
    fn an_effect_behind_not_done_is_noticed() {
        let mut scene = scene();
        scene.answer(1, not_done()).unwrap();
        broken(scene.grant("a", 1, 5, 1), "I19");
    }

    #[test]
    fn not_done_behind_the_effect_is_noticed() {
        let mut scene = scene();
        scene.grant("a", 1, 5, 1).unwrap();
        broken(scene.answer(1, not_done()), "I19");
    }

    #[test]
    fn a_further_try_may_take_effect() {
        let mut scene = scene();
        scene.answer(1, not_done()).unwrap();
        scene.ask(2, 1, 1, acquire_op("a")).unwrap();
        scene.grant("a", 1, 5, 1).unwrap();
    }

    #[test]
    fn what_is_unknown_may_take_effect() {
        let mut scene = scene();
        let error = String::new();
        scene.answer(1, Outcome::Unknown { error }).unwrap();
        scene.ask(2, 1, 1, acquire_op("a")).unwrap();
        scene.answer(2, not_done()).unwrap();
        scene.grant("a", 1, 5, 1).unwrap();
    }

    #[test]
    fn a_grant_behind_a_refusal_is_noticed() {
        let mut scene = scene();
        scene.answer(1, Outcome::TimedOut).unwrap();
        broken(scene.tick(vec![granted_event("a", 1, 5, 1)]), "I19");
    }
}
