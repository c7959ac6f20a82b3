//! I29: behind all faults every change of the members ends: every member knows the same voters, in
//! one set, by an entry that is committed.

use super::Property;
use super::settled::of_the_leader;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct MembersSettle;

impl Property for MembersSettle {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let Observation::Remains(remains) = seen else {
            return Ok(());
        };
        let broken = |why: String| Err(Violation::of("I29", why));
        let Some((leader, voters)) = of_the_leader(remains) else {
            return broken("no node leads at the end".to_owned());
        };
        if !voters.is_settled() {
            return broken(format!(
                "a change of the voters was never finished: leader n{} has {voters:?}",
                leader.node
            ));
        }
        for left in remains {
            let Some(id) = left.id else { continue };
            if leader.members.contains(&id) && left.voters.as_ref() != Some(voters) {
                return broken(format!(
                    "n{} has {:?}, and its leader n{} has {voters:?}",
                    left.node, left.voters, leader.node
                ));
            }
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

    #[test]
    fn a_change_that_was_never_finished_is_noticed() {
        let mut scene = Scene::of(MembersSettle);
        let mut left = remains(3);
        scene.see(Observation::Remains(left.clone())).unwrap();
        for one in &mut left {
            let voters = one.voters.as_mut().unwrap();
            voters.sets.push([1, 2, 4].into());
        }
        broken(scene.see(Observation::Remains(left)), "I29");
    }

    #[test]
    fn voters_by_an_entry_that_is_not_committed_are_noticed() {
        let mut scene = Scene::of(MembersSettle);
        let mut left = remains(3);
        left[0].voters.as_mut().unwrap().committed = false;
        broken(scene.see(Observation::Remains(left)), "I29");
    }

    #[test]
    fn a_member_that_knows_other_voters_is_noticed_and_one_that_was_removed_is_not() {
        let mut scene = Scene::of(MembersSettle);
        let mut left = remains(3);
        let older = left[2].voters.as_mut().unwrap();
        older.sets[0] = [2, 3].into();
        broken(scene.see(Observation::Remains(left.clone())), "I29");
        for one in &mut left[..2] {
            one.members.remove(&3);
        }
        scene.see(Observation::Remains(left)).unwrap();
    }

    #[test]
    fn members_without_a_leader_are_noticed() {
        let mut scene = Scene::of(MembersSettle);
        let mut left = remains(3);
        left[0].leads = None;
        broken(scene.see(Observation::Remains(left)), "I29");
    }
}
