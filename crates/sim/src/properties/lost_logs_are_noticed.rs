//! I33: a node that has a seat in a cluster and finds its log gone does not start: it has promised
//! what it no longer knows.

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct LostLogsAreNoticed;

impl Property for LostLogsAreNoticed {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::StartedWithoutLog { node } => {
                let why = format!("n{node} goes on without the log that it had");
                Err(Violation::of("I33", why))
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
    fn a_node_that_goes_on_without_its_log_is_noticed() {
        let mut scene = Scene::of(LostLogsAreNoticed);
        scene.see(Observation::Started { node: 1 }).unwrap();
        broken(scene.see(Observation::StartedWithoutLog { node: 1 }), "I33");
    }
}
