//! I31: behind all faults no running node has a file that no rule names: nothing that was broken off
//! stays on a disk.

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct NoFileIsLeft;

impl Property for NoFileIsLeft {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let Observation::Remains(remains) = seen else {
            return Ok(());
        };
        match remains.iter().find(|left| !left.unexpected.is_empty()) {
            None => Ok(()),
            Some(left) => Err(Violation::of(
                "I31",
                format!("n{} has {:?}", left.node, left.unexpected),
            )),
        }
    }

    fn outlives_a_rollback(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, broken, remains};
    use super::*;

    #[test]
    fn a_file_that_no_rule_names_is_noticed() {
        let mut scene = Scene::of(NoFileIsLeft);
        let mut left = remains(3);
        scene.see(Observation::Remains(left.clone())).unwrap();
        let partial = "/data/snapshots/incoming-1.partial".to_owned();
        left[1].unexpected.insert(partial);
        broken(scene.see(Observation::Remains(left)), "I31");
    }
}
