//! I30: a node id names one data directory, over the cluster's whole life: no other directory has
//! it, and no node is listed under it, before or after.

use std::collections::BTreeMap;

use ringfence_raft::Incarnation;

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct NodeIdsAreUnique {
    /// Whose each id is, as the nodes know themselves: node and directory.
    seats: BTreeMap<u64, (usize, u64)>,
    /// And as they know each other.
    listed: BTreeMap<u64, Incarnation>,
}

impl Property for NodeIdsAreUnique {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match *seen {
            Observation::Seat {
                node,
                directory,
                id,
            } => {
                let (first, its) = *self.seats.entry(id).or_insert((node, directory));
                if (first, its) != (node, directory) {
                    return Err(Violation::of(
                        "I30",
                        format!(
                            "id {id} is that of n{first} in its directory {its}, and of n{node} in \
                             its directory {directory}"
                        ),
                    ));
                }
            }
            Observation::Listed {
                by,
                id,
                incarnation,
            } => {
                let first = *self.listed.entry(id).or_insert(incarnation);
                if first != incarnation {
                    return Err(Violation::of(
                        "I30",
                        format!("n{by} lists {incarnation} under id {id}, which was {first}'s"),
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, broken};
    use super::*;

    fn seat(node: usize, directory: u64, id: u64) -> Observation {
        Observation::Seat {
            node,
            directory,
            id,
        }
    }

    #[test]
    fn two_nodes_with_one_id_are_noticed() {
        let mut scene = Scene::of(NodeIdsAreUnique::default());
        scene.see(seat(3, 0, 4)).unwrap();
        scene.see(seat(4, 0, 64)).unwrap();
        broken(scene.see(seat(5, 0, 4)), "I30");
    }

    #[test]
    fn a_wiped_node_that_has_its_old_id_is_noticed() {
        let mut scene = Scene::of(NodeIdsAreUnique::default());
        scene.see(seat(0, 0, 1)).unwrap();
        scene.see(seat(0, 1, 70)).unwrap();
        broken(scene.see(seat(0, 1, 1)), "I30");
    }

    #[test]
    fn an_id_that_is_given_to_another_incarnation_is_noticed() {
        let mut scene = Scene::of(NodeIdsAreUnique::default());
        let listed = |by, id, of: u8| Observation::Listed {
            by,
            id,
            incarnation: Incarnation::from_slice(&[of; 16]).unwrap(),
        };
        scene.see(listed(0, 1, 1)).unwrap();
        scene.see(listed(1, 1, 1)).unwrap();
        scene.see(listed(1, 2, 2)).unwrap();
        broken(scene.see(listed(0, 2, 3)), "I30");
    }
}
