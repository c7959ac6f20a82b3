//! I35: no removal of a voter is begun, unless by force, if the voters that are left have no live majority.

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct ALiveMajorityIsLeft;

impl Property for ALiveMajorityIsLeft {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match *seen {
            Observation::VoterRemoved { left, dead } if 2 * left.saturating_sub(dead) <= left => {
                let why = format!("a voter was removed, and of {left} others {dead} are down");
                Err(Violation::of("I35", why))
            }
            _ => Ok(()),
        }
    }

    fn outlives_a_rollback(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, broken};
    use super::*;

    #[test]
    fn a_removal_that_leaves_no_live_majority_is_noticed() {
        let mut scene = Scene::of(ALiveMajorityIsLeft);
        let removed = |left, dead| Observation::VoterRemoved { left, dead };
        for (left, dead) in [(3, 1), (4, 1), (2, 0), (1, 0), (6, 2)] {
            scene.see(removed(left, dead)).unwrap();
        }
        for (left, dead) in [(2, 1), (4, 2), (3, 2), (6, 3)] {
            broken(scene.see(removed(left, dead)), "I35");
        }
    }
}
