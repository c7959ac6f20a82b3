//! I36: a node ends on its own only if its disk failed, or if it was removed: not for want of room,
//! and not for what a peer has sent.

use std::collections::BTreeSet;

use ringfence_raft::StopReason;

use super::Property;
use crate::listener::End;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct EndsHaveAReason {
    /// Nodes whose disks were made to fail.
    failing: BTreeSet<usize>,
}

impl Property for EndsHaveAReason {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::DiskFails { node } => {
                self.failing.insert(*node);
            }
            Observation::Ended { node, how } => {
                let failed = self.failing.remove(node);
                match how {
                    End::ByItself(StopReason::Removed) => {}
                    End::ByItself(StopReason::Storage { .. }) if failed => {}
                    End::ByItself(why) => {
                        let why = format!("n{node} has ended although its disk is well: {why}");
                        return Err(Violation::of("I36", why));
                    }
                    End::Stopped | End::Crashed | End::NotStarted(_) => {}
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

    fn ended(why: StopReason) -> Observation {
        let how = End::ByItself(why);
        Observation::Ended { node: 1, how }
    }

    fn storage() -> Observation {
        ended(StopReason::Storage { why: String::new() })
    }

    #[test]
    fn an_end_without_a_reason_is_noticed() {
        let mut scene = Scene::of(EndsHaveAReason::default());
        scene.see(ended(StopReason::Removed)).unwrap();
        broken(scene.see(storage()), "I36");
    }

    #[test]
    fn a_disk_that_failed_is_a_reason_once() {
        let mut scene = Scene::of(EndsHaveAReason::default());
        scene.see(Observation::DiskFails { node: 1 }).unwrap();
        scene.see(storage()).unwrap();
        broken(scene.see(storage()), "I36");
    }
}
