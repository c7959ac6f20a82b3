//! I15: replicas that have applied the same entries are in the same state, whether they applied them
//! or took the state from a snapshot, and answered the same.

use std::collections::BTreeMap;

use super::Property;
use crate::observe::{Applied, At, Observation, Violation};
use crate::world::hash_of;

#[derive(Default)]
pub(super) struct EqualStates {
    /// What is known of each index: the state behind it, and what was answered.
    log: BTreeMap<u64, Behind>,
}

#[derive(Clone, Copy)]
struct Behind {
    state: Option<u64>,
    answer: u64,
}

impl Property for EqualStates {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) => self.applied(applied),
            Observation::Installed {
                node,
                index,
                digest,
                ..
            } => {
                let state = self.log.get(index).and_then(|behind| behind.state);
                let wrong = state.is_some_and(|state| state != *digest);
                let why = || format!("n{node} installed another state at {index}");
                if wrong {
                    Err(Violation::of("I15", why()))
                } else {
                    Ok(())
                }
            }
            Observation::RolledBack | Observation::Restored => {
                self.log.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn outlives_a_rollback(&self) -> bool {
        true
    }
}

impl EqualStates {
    fn applied(&mut self, applied: &Applied) -> Result<(), Violation> {
        let index = applied.entry.index;
        let answer = hash_of((&applied.outcome, &applied.events));
        let Some(known) = self.log.get_mut(&index) else {
            let state = applied.digest;
            self.log.insert(index, Behind { state, answer });
            return Ok(());
        };
        let node = applied.node;
        if known.answer != answer {
            let said = (&applied.outcome, &applied.events);
            let why = format!("n{node} answered {index} otherwise: {said:?}");
            return Err(Violation::of("I15", why));
        }
        match (known.state, applied.digest) {
            (Some(one), Some(other)) if one != other => {
                let why = format!("n{node} is in another state behind {index}");
                Err(Violation::of("I15", why))
            }
            (None, state) => {
                known.state = state;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ringfence_core::{Command, Outcome, Rejection};

    use super::super::scene::{Scene, broken};
    use super::*;

    fn applied(scene: &Scene<EqualStates>, node: usize, digest: u64) -> Applied {
        Applied {
            digest: Some(digest),
            ..scene.applied(node, Command::Tick, Outcome::Done, Vec::new())
        }
    }

    fn see(scene: &mut Scene<EqualStates>, applied: Applied) -> Result<(), Violation> {
        scene.see(Observation::Applied(Arc::new(applied)))
    }

    #[test]
    fn another_state_behind_the_same_entry_is_noticed() {
        let mut scene = Scene::of(EqualStates::default());
        let (one, other) = (applied(&scene, 0, 7), applied(&scene, 1, 8));
        see(&mut scene, one).unwrap();
        broken(see(&mut scene, other), "I15");
    }

    #[test]
    fn another_answer_to_the_same_entry_is_noticed() {
        let mut scene = Scene::of(EqualStates::default());
        let one = applied(&scene, 0, 7);
        let refused = Outcome::Rejected(Rejection::NotReady);
        let other = scene.applied(1, Command::Tick, refused, Vec::new());
        see(&mut scene, one).unwrap();
        broken(see(&mut scene, other), "I15");
    }

    #[test]
    fn a_snapshot_of_another_state_is_noticed() {
        let mut scene = Scene::of(EqualStates::default());
        let one = applied(&scene, 0, 7);
        see(&mut scene, one).unwrap();
        let installed = |digest| Observation::Installed {
            node: 2,
            index: 0,
            term: 1,
            digest,
        };
        scene.see(installed(7)).unwrap();
        broken(scene.see(installed(9)), "I15");
    }
}
