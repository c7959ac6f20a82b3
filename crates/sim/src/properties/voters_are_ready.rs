//! I32: behind all faults every voter is ready to serve, or it does not run and has said why. Every
//! other node that runs is ready, too, unless it says that it never got into the cluster, or was
//! removed from it and then started once more: no node speaks to it any more.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_raft::{NotReady, StopReason};

use super::Property;
use super::settled::of_the_leader;
use crate::listener::End;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct VotersAreReady {
    /// Which node has which id.
    seats: BTreeMap<u64, usize>,
    /// Ids whose disk was wiped: their node came back under another one.
    wiped: BTreeSet<u64>,
    /// How those that do not run have ended.
    ends: BTreeMap<usize, End>,
    /// Those that were removed, and have not come back as others.
    removed: BTreeSet<usize>,
}

impl VotersAreReady {
    /// Why a voter that does not run does not, as it said itself.
    fn said_why(&self, id: u64) -> Result<(), String> {
        let Some(node) = self.seats.get(&id) else {
            return Err(format!("voter {id} is no node"));
        };
        match self.ends.get(node) {
            Some(End::ByItself(_) | End::NotStarted(_)) => Ok(()),
            // The operator took the disk away, and later the node, before it had its vote again.
            Some(_) if self.wiped.contains(&id) => Ok(()),
            how => Err(format!("n{node}, voter {id}, does not run: {how:?}")),
        }
    }
}

impl Property for VotersAreReady {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Seat { node, id, .. } => {
                let of_node = self.seats.iter().filter(|(_, seat)| *seat == node);
                let before = of_node.map(|(before, _)| *before);
                self.wiped.extend(before.filter(|before| before != id));
                self.seats.insert(*id, *node);
                self.removed.remove(node);
            }
            Observation::Started { node } => {
                self.ends.remove(node);
            }
            Observation::Ended { node, how } => {
                if *how == End::ByItself(StopReason::Removed) {
                    self.removed.insert(*node);
                }
                self.ends.insert(*node, how.clone());
            }
            Observation::Remains(remains) => {
                let broken = |why: String| Err(Violation::of("I32", why));
                for left in remains {
                    match &left.ready {
                        Ok(()) => {}
                        Err(NotReady::NoCluster) if left.id.is_none() => {}
                        Err(_) if self.removed.contains(&left.node) => {}
                        Err(why) => {
                            let (node, id) = (left.node, left.id);
                            return broken(format!("n{node}, id {id:?}, is not ready: {why}"));
                        }
                    }
                }
                let Some((_, voters)) = of_the_leader(remains) else {
                    return broken("no node leads at the end".to_owned());
                };
                for id in voters.sets.iter().flatten() {
                    let runs = remains.iter().any(|left| left.id == Some(*id));
                    if !runs && let Err(why) = self.said_why(*id) {
                        return broken(why);
                    }
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
    use super::super::scene::{Scene, broken, remains};
    use super::*;

    fn scene() -> Scene<VotersAreReady> {
        let mut scene = Scene::of(VotersAreReady::default());
        for (node, id) in [(0, 1), (1, 2), (2, 3)] {
            let directory = 0;
            scene.see(Observation::Started { node }).unwrap();
            let seat = Observation::Seat {
                node,
                directory,
                id,
            };
            scene.see(seat).unwrap();
        }
        scene
    }

    #[test]
    fn a_node_that_is_not_ready_is_noticed() {
        let mut left = remains(3);
        scene().see(Observation::Remains(left.clone())).unwrap();
        left[1].ready = Err(NotReady::NoLeader {
            term: 7,
            heard: None,
        });
        broken(scene().see(Observation::Remains(left)), "I32");
    }

    #[test]
    fn a_node_that_was_removed_and_started_once_more_need_not_be_ready() {
        let mut left = remains(3);
        left[1].ready = Err(NotReady::NoLeader {
            term: 7,
            heard: None,
        });
        let mut scene = scene();
        let how = End::ByItself(StopReason::Removed);
        scene.see(Observation::Ended { node: 1, how }).unwrap();
        scene.see(Observation::Started { node: 1 }).unwrap();
        scene.see(Observation::Remains(left.clone())).unwrap();
        // As another one it is.
        let seat = Observation::Seat {
            node: 1,
            directory: 1,
            id: 9,
        };
        scene.see(seat).unwrap();
        broken(scene.see(Observation::Remains(left)), "I32");
    }

    #[test]
    fn a_newcomer_that_nobody_took_in_says_so() {
        let mut left = remains(3);
        let mut newcomer = left[2].clone();
        (newcomer.node, newcomer.id, newcomer.voters) = (3, None, None);
        newcomer.ready = Err(NotReady::NoCluster);
        left.push(newcomer);
        scene().see(Observation::Remains(left.clone())).unwrap();
        // One that has an id learned that it is a member.
        left[3].id = Some(4);
        broken(scene().see(Observation::Remains(left)), "I32");
    }

    #[test]
    fn a_voter_whose_disk_was_wiped_need_not_run_once_its_node_is_gone() {
        let mut left = remains(3);
        let mut scene = scene();
        let seat = Observation::Seat {
            node: 2,
            directory: 1,
            id: 9,
        };
        scene.see(seat).unwrap();
        left[2].id = Some(9);
        // As long as the node runs it gets its vote again.
        broken(scene.see(Observation::Remains(left.clone())), "I32");
        left.pop();
        let how = End::Crashed;
        scene.see(Observation::Ended { node: 2, how }).unwrap();
        scene.see(Observation::Remains(left)).unwrap();
    }

    #[test]
    fn a_voter_that_does_not_run_has_to_have_said_why() {
        let mut left = remains(3);
        left.pop();
        let ended = |how| Observation::Ended { node: 2, how };
        let mut scene = scene();
        scene.see(ended(End::Crashed)).unwrap();
        broken(scene.see(Observation::Remains(left.clone())), "I32");
        let why = StopReason::Storage { why: String::new() };
        scene.see(ended(End::ByItself(why))).unwrap();
        scene.see(Observation::Remains(left.clone())).unwrap();
        for one in &mut left {
            one.voters.as_mut().unwrap().sets[0].insert(9);
        }
        broken(scene.see(Observation::Remains(left)), "I32");
    }
}
