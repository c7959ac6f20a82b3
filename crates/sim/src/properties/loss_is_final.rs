//! I24: a grant that was once reported lost is never again reported held, by no look and in no new
//! belief.

use std::collections::BTreeMap;

use ringfence_check::history::BeliefEnd;

use super::Property;
use crate::observe::{At, Belief, Observation, Violation};

#[derive(Default)]
pub(super) struct LossIsFinal {
    lost: BTreeMap<Belief, BeliefEnd>,
}

impl Property for LossIsFinal {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            // A hand-over that did not take place brings the lease back.
            Observation::BeliefEnded {
                why: BeliefEnd::Transferred,
                ..
            } => {}
            Observation::BeliefEnded { belief, why, .. } => {
                self.lost.insert(belief.clone(), *why);
            }
            Observation::Looked {
                belief,
                held: false,
            } => {
                let why = BeliefEnd::Window;
                self.lost.entry(belief.clone()).or_insert(why);
            }
            Observation::BeliefBegan(belief) | Observation::Looked { belief, held: true } => {
                if let Some(why) = self.lost.get(belief) {
                    let why = format!("{belief:?} is held again, and was over before: {why:?}");
                    return Err(Violation::of("I24", why));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn outlives_a_rollback(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, belief, broken};
    use super::*;

    fn looked(held: bool) -> Observation {
        Observation::Looked {
            belief: belief(1, "a", 5),
            held,
        }
    }

    #[test]
    fn a_lost_grant_that_is_held_again_is_noticed() {
        let grant = belief(1, "a", 5);
        let mut scene = Scene::of(LossIsFinal::default());
        scene.believe(&grant).unwrap();
        scene.see(looked(true)).unwrap();
        scene.doubt(&grant, BeliefEnd::Window).unwrap();
        broken(scene.see(looked(true)), "I24");
        broken(scene.believe(&grant), "I24");
    }

    #[test]
    fn a_look_that_says_no_and_then_yes_is_noticed() {
        let mut scene = Scene::of(LossIsFinal::default());
        scene.see(looked(false)).unwrap();
        broken(scene.see(looked(true)), "I24");
    }

    #[test]
    fn a_hand_over_that_failed_brings_the_grant_back() {
        let grant = belief(1, "a", 5);
        let mut scene = Scene::of(LossIsFinal::default());
        scene.believe(&grant).unwrap();
        scene.doubt(&grant, BeliefEnd::Transferred).unwrap();
        scene.believe(&grant).unwrap();
    }
}
