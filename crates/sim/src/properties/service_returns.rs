//! I18: when faults have stopped, the service is back within three election timeouts and a second:
//! some request that was asked for behind that moment is answered by an applied entry.

use std::collections::BTreeSet;
use std::time::Duration;

use ringfence_check::history::Outcome;

use super::{Bounds, Property};
use crate::observe::{At, Observation, Phase, Violation};

pub(super) struct ServiceReturns {
    within: Duration,
    healed: Option<At>,
    /// Tries since then.
    asked: BTreeSet<u64>,
}

impl ServiceReturns {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            within: 3 * bounds.election_max + Duration::from_secs(1),
            healed: None,
            asked: BTreeSet::new(),
        }
    }

    fn late(&self, at: At) -> Result<(), Violation> {
        match self.healed {
            Some(healed) if at > healed + self.within => {
                let why = format!("no service at {at:?}, faults stopped at {healed:?}");
                Err(Violation::of("I18", why))
            }
            _ => Ok(()),
        }
    }
}

impl Property for ServiceReturns {
    fn see(&mut self, at: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Phase(Phase::Liveness) => self.healed = Some(at),
            Observation::Asked(asked) if self.healed.is_some() => {
                self.asked.insert(asked.id);
            }
            Observation::Answered(answered) => {
                let served = !matches!(
                    answered.outcome,
                    Outcome::Unknown { .. } | Outcome::NotDone { .. }
                );
                if self.asked.remove(&answered.id) && served {
                    self.late(at)?;
                    self.healed = None;
                    self.asked.clear();
                }
            }
            _ => {}
        }
        self.late(at)
    }

    fn end(&mut self, at: At) -> Result<(), Violation> {
        self.late(at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{BOUNDS, Scene, acquire_op, broken};
    use super::*;

    fn scene() -> Scene<ServiceReturns> {
        let mut scene = Scene::of(ServiceReturns::new(BOUNDS));
        scene.ask(1, 1, 1, acquire_op("a")).unwrap();
        scene.phase(Phase::Liveness).unwrap();
        scene
    }

    #[test]
    fn silence_after_the_faults_is_noticed() {
        broken(scene().wait(1_901).end(), "I18");
    }

    #[test]
    fn being_put_off_is_no_service() {
        let mut scene = scene();
        scene.ask(2, 1, 1, acquire_op("a")).unwrap();
        let error = String::new();
        scene.wait(5).answer(2, Outcome::NotDone { error }).unwrap();
        broken(scene.wait(1_900).end(), "I18");
    }

    #[test]
    fn an_answer_in_time_is_service() {
        let mut scene = scene();
        scene.ask(2, 1, 1, acquire_op("a")).unwrap();
        scene.wait(1_900).answer(2, Outcome::TimedOut).unwrap();
        scene.wait(60_000).end().unwrap();
    }
}
