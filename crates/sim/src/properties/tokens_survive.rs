//! I16: whatever becomes of the disks, no token is granted a second time or after a greater one: not
//! behind a rollback of all disks to an older copy, not behind a wipe, and not in a cluster that is
//! restored from a backup. A cluster that was formed
//! with a token floor does not take its tokens from the clock, so a rollback of it is not covered; nor
//! is one where the wall clocks of nodes are set, or run, further apart than terms wait for.

use std::collections::BTreeMap;

use ringfence_core::{Command, Event};

use super::Property;
use crate::faults::Fault;
use crate::observe::{At, Observation, Violation};
use crate::properties::PPM_MAX;

#[derive(Default)]
pub(super) struct TokensSurvive {
    /// Who was granted each token: index, term, session.
    granted: BTreeMap<u64, (u64, u64, u64)>,
    /// The same of those that nothing is compared with any more. Replicas that are behind may still
    /// apply them.
    excused: BTreeMap<u64, (u64, u64, u64)>,
    lives: u64,
    has_floor: bool,
    /// Wall clocks of nodes are far apart, or were.
    clocks_apart: bool,
}

impl Property for TokensSurvive {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::RolledBack => {
                self.lives += 1;
                if self.has_floor || self.clocks_apart {
                    self.excuse();
                }
            }
            // Its tokens begin at the clock, above those of the backup.
            Observation::Restored => {
                self.lives += 1;
                if self.clocks_apart {
                    self.excuse();
                }
            }
            Observation::FaultBegan { fault, .. } if sets_clocks_apart(fault) => {
                self.clocks_apart = true;
                if self.lives > 0 {
                    self.excuse();
                }
            }
            Observation::Applied(applied) => {
                if let Command::Form(form) = &applied.entry.command {
                    self.has_floor |= form.token_floor.is_some();
                }
                for event in &applied.events {
                    let Event::Granted(granted) = event else {
                        continue;
                    };
                    let token = granted.token.get();
                    let entry = (applied.entry.index, applied.entry.term);
                    let grant = (entry.0, entry.1, granted.session.get());
                    self.grant(token, grant)?;
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

impl TokensSurvive {
    /// Nothing is promised between what was granted and what will be.
    fn excuse(&mut self) {
        self.excused.append(&mut self.granted);
    }

    fn grant(&mut self, token: u64, grant: (u64, u64, u64)) -> Result<(), Violation> {
        if self.excused.get(&token) == Some(&grant) {
            return Ok(());
        }
        match self.granted.get(&token) {
            // Another replica, or the same one again.
            Some(known) if *known == grant => return Ok(()),
            Some(known) => {
                let lives = self.lives;
                let why = format!("{token} was granted to {known:?} and {grant:?} ({lives} lives)");
                return Err(Violation::of("I16", why));
            }
            None => {}
        }
        if let Some((greatest, known)) = self.granted.last_key_value()
            && *greatest > token
        {
            let why = format!("{token} was granted to {grant:?} behind {greatest} to {known:?}");
            return Err(Violation::of("I16", why));
        }
        self.granted.insert(token, grant);
        Ok(())
    }
}

/// Whether the wall clock of a node shows something else than those of the others from here on.
fn sets_clocks_apart(fault: &Fault) -> bool {
    match fault {
        Fault::WallJump { .. } => true,
        Fault::NodeRate { ppm, .. } => ppm.unsigned_abs() > PPM_MAX,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, broken};
    use super::*;
    use crate::faults::Who;

    /// A cluster that is set back behind its first two grants.
    fn scene() -> Scene<TokensSurvive> {
        let mut scene = Scene::of(TokensSurvive::default());
        scene.grant("a", 1, 5, 1).unwrap();
        scene.grant("b", 1, 6, 2).unwrap();
        scene.see(Observation::RolledBack).unwrap();
        scene.index = 0;
        scene.grant("a", 1, 5, 1).unwrap();
        scene.term = 3;
        scene
    }

    #[test]
    fn a_token_that_is_granted_again_behind_a_rollback_is_noticed() {
        broken(scene().grant("b", 2, 6, 1), "I16");
    }

    #[test]
    fn a_smaller_token_behind_a_rollback_is_noticed() {
        let mut scene = scene();
        scene.grant("b", 2, 9, 1).unwrap();
        broken(scene.grant("c", 2, 7, 2), "I16");
    }

    fn clock_of_a_node_jumps() -> Observation {
        let (who, millis) = (Who::Leader, -3_600_000);
        let fault = Fault::WallJump { who, millis };
        Observation::FaultBegan { at: 0, fault }
    }

    #[test]
    fn clocks_that_are_apart_promise_nothing_over_a_rollback() {
        let mut scene = scene();
        scene.see(clock_of_a_node_jumps()).unwrap();
        scene.grant("b", 2, 6, 1).unwrap();
        scene.see(Observation::RolledBack).unwrap();
        scene.grant("c", 2, 6, 2).unwrap();
    }

    #[test]
    fn clocks_that_are_apart_repeat_no_token_without_a_rollback() {
        let mut scene = Scene::of(TokensSurvive::default());
        scene.see(clock_of_a_node_jumps()).unwrap();
        scene.grant("a", 1, 5, 1).unwrap();
        broken(scene.grant("b", 2, 5, 1), "I16");
    }

    #[test]
    fn a_replica_that_is_behind_applies_what_was_granted_before_clocks_were_apart() {
        let mut scene = scene();
        let behind = scene.index;
        scene.grant("b", 2, 9, 1).unwrap();
        scene.see(clock_of_a_node_jumps()).unwrap();
        scene.grant("c", 2, 11, 2).unwrap();
        scene.index = behind;
        scene.grant("b", 2, 9, 1).unwrap();
        broken(scene.grant("d", 2, 10, 3), "I16");
    }

    #[test]
    fn the_log_that_is_left_may_be_applied_again() {
        let mut scene = scene();
        scene.grant("b", 2, 1_000, 1).unwrap();
    }
}
