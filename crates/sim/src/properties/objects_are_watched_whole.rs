//! E3, as a watch sees it: versions of Lease objects never fall from node to node, and a watch that
//! goes on from a version ends in the state that is listed.

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct ObjectsAreWatchedWhole;

impl Property for ObjectsAreWatchedWhole {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let Observation::ObjectsWatched {
            from,
            to,
            shown,
            listed,
        } = seen
        else {
            return Ok(());
        };
        if to < from {
            let why = format!("a watch went on from version {from}, and came to {to}");
            return Err(Violation::of("E3", why));
        }
        match shown == listed {
            true => Ok(()),
            false => Err(Violation::of(
                "E3",
                format!("a watch went on from version {from}, and shows {shown} of {listed}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, broken};
    use super::*;

    fn watched(from: u64, to: u64, shown: &str) -> Observation {
        Observation::ObjectsWatched {
            from,
            to,
            shown: shown.to_owned(),
            listed: "a".to_owned(),
        }
    }

    #[test]
    fn a_version_that_falls_and_a_change_that_is_missed_are_noticed() {
        let mut scene = Scene::of(ObjectsAreWatchedWhole);
        scene.see(watched(3, 4, "a")).unwrap();
        broken(scene.see(watched(4, 3, "a")), "E3");
        broken(scene.see(watched(4, 5, "b")), "E3");
    }
}
