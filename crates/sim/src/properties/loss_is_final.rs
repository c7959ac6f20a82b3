//! I24: a grant that was once reported lost is never again reported held, by no look and in no new
//! belief. A cluster with a token floor that is rolled back grants its tokens a second time, to
//! any session: what was lost before says nothing then.

use std::collections::BTreeMap;

use ringfence_check::history::BeliefEnd;
use ringfence_core::Command;

use super::Property;
use crate::observe::{At, Belief, Observation, Violation};

#[derive(Default)]
pub(super) struct LossIsFinal {
    lost: BTreeMap<Belief, BeliefEnd>,
    has_floor: bool,
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
            Observation::Applied(applied) => {
                if let Command::Form(form) = &applied.entry.command {
                    self.has_floor |= form.token_floor.is_some();
                }
            }
            Observation::RolledBack if self.has_floor => self.lost.clear(),
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
    use ringfence_core::{ClusterId, Form, Outcome, Settings};

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
    fn a_token_that_is_granted_anew_behind_a_rollback_is_another_grant() {
        for token_floor in [None, Some(0)] {
            let grant = belief(1, "a", 5);
            let mut scene = Scene::of(LossIsFinal::default());
            let form = Command::Form(Form {
                cluster: ClusterId::new([1; 16]),
                token_floor,
                settings: Settings::STANDARD,
                mode: ringfence_core::Mode::Off,
                quiet_time: ringfence_core::Millis(0),
                restored: None,
            });
            scene.apply(form, Outcome::Done, Vec::new()).unwrap();
            scene.believe(&grant).unwrap();
            scene.doubt(&grant, BeliefEnd::Released).unwrap();
            scene.see(Observation::RolledBack).unwrap();
            assert_eq!(scene.believe(&grant).is_ok(), token_floor.is_some());
        }
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
