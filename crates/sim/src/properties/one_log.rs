//! I17, as far as it shows: at most one node leads in a term, all nodes apply the same entry at an
//! index, terms never fall along the log, and each node applies its entries in order.

use std::collections::BTreeMap;

use super::Property;
use crate::observe::{At, Observation, Violation};
use crate::world::hash_of;

#[derive(Default)]
pub(super) struct OneLog {
    leaders: BTreeMap<u64, usize>,
    /// Term and content of each entry.
    log: BTreeMap<u64, (u64, u64)>,
    /// How far each node's state is.
    nodes: BTreeMap<usize, u64>,
}

impl Property for OneLog {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let wrong = match seen {
            Observation::Leads { node, term } => {
                let leader = *self.leaders.entry(*term).or_insert(*node);
                if leader == *node {
                    Ok(())
                } else {
                    Err(format!("n{leader} and n{node} lead in term {term}"))
                }
            }
            Observation::Applied(applied) => {
                let entry = &applied.entry;
                let content = hash_of((&entry.command, entry.time, entry.wall));
                self.entry(applied.node, entry.index, entry.term, content)
            }
            Observation::Skipped { node, index, term } => self.entry(*node, *index, *term, 0),
            // A snapshot of nothing, or of the first entry alone: it is unknown which.
            Observation::Installed { node, index: 0, .. } => {
                self.nodes.remove(node);
                Ok(())
            }
            Observation::Installed { node, index, .. } => {
                self.nodes.insert(*node, *index);
                Ok(())
            }
            Observation::Started { node } => {
                self.nodes.remove(node);
                Ok(())
            }
            Observation::RolledBack | Observation::Restored => {
                *self = Self::default();
                Ok(())
            }
            _ => Ok(()),
        };
        wrong.map_err(|why| Violation::of("I17", why))
    }

    fn outlives_a_rollback(&self) -> bool {
        true
    }
}

impl OneLog {
    fn entry(&mut self, node: usize, index: u64, term: u64, content: u64) -> Result<(), String> {
        if let Some(before) = self.nodes.insert(node, index)
            && index <= before
        {
            return Err(format!("n{node} applied {index} behind {before}"));
        }
        match self.log.get(&index) {
            Some(known) if *known != (term, content) => {
                return Err(format!(
                    "n{node} applied another entry at {index}, of term {term}; others one of {}",
                    known.0
                ));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        let before = self.log.range(..index).next_back();
        let behind = self.log.range(index..).next();
        if before.is_some_and(|(_, (earlier, _))| *earlier > term)
            || behind.is_some_and(|(_, (later, _))| *later < term)
        {
            return Err(format!(
                "the term falls at {index}: {before:?}, {term}, {behind:?}"
            ));
        }
        self.log.insert(index, (term, content));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ringfence_core::{Command, Outcome};

    use super::super::scene::{Scene, broken, session};
    use super::*;

    fn see(scene: &mut Scene<OneLog>, node: usize, command: Command) -> Result<(), Violation> {
        let applied = scene.applied(node, command, Outcome::Done, Vec::new());
        scene.see(Observation::Applied(Arc::new(applied)))
    }

    #[test]
    fn two_leaders_of_one_term_are_noticed() {
        let mut scene = Scene::of(OneLog::default());
        scene.see(Observation::Leads { node: 0, term: 4 }).unwrap();
        scene.see(Observation::Leads { node: 0, term: 4 }).unwrap();
        broken(scene.see(Observation::Leads { node: 1, term: 4 }), "I17");
    }

    #[test]
    fn another_entry_at_an_index_is_noticed() {
        let mut scene = Scene::of(OneLog::default());
        see(&mut scene, 0, Command::Tick).unwrap();
        let close = Command::Close {
            session: session(1),
            secret: ringfence_core::Secret::new([0; 16]),
        };
        broken(see(&mut scene, 1, close), "I17");
    }

    #[test]
    fn an_entry_of_another_term_at_an_index_is_noticed() {
        let mut scene = Scene::of(OneLog::default());
        see(&mut scene, 0, Command::Tick).unwrap();
        scene.term += 1;
        broken(see(&mut scene, 1, Command::Tick), "I17");
    }

    #[test]
    fn a_term_that_falls_along_the_log_is_noticed() {
        let mut scene = Scene::of(OneLog::default());
        scene.term_start().unwrap();
        scene.term -= 1;
        broken(scene.tick(Vec::new()), "I17");
    }

    #[test]
    fn the_first_entry_may_come_behind_a_snapshot_of_nothing_and_others_come_once() {
        let installed = |index| Observation::Installed {
            node: 0,
            index,
            term: 0,
            digest: 7,
        };
        let skipped = |index| Observation::Skipped {
            node: 0,
            index,
            term: 0,
        };
        let mut scene = Scene::of(OneLog::default());
        scene.see(installed(0)).unwrap();
        scene.see(skipped(0)).unwrap();
        scene.see(installed(5)).unwrap();
        broken(scene.see(skipped(5)), "I17");
    }

    #[test]
    fn a_node_that_applies_an_entry_twice_is_noticed_unless_it_has_started_anew() {
        let mut scene = Scene::of(OneLog::default());
        see(&mut scene, 0, Command::Tick).unwrap();
        scene.see(Observation::Started { node: 0 }).unwrap();
        see(&mut scene, 0, Command::Tick).unwrap();
        broken(see(&mut scene, 0, Command::Tick), "I17");
    }
}
