//! I23: no guard refuses the grant in force once it has advanced there.

use std::collections::BTreeSet;

use super::Property;
use super::track::InForce;
use crate::observe::{Act, At, Observation, Violation};

#[derive(Default)]
pub(super) struct GuardsAdmitTheHolder {
    held: InForce,
    /// Tokens that have advanced a store's guard.
    advanced: BTreeSet<(String, u64)>,
}

impl Property for GuardsAdmitTheHolder {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) if applied.first => self.held.take(applied),
            Observation::Guard(visit) => {
                let key = (visit.store.clone(), visit.token);
                if visit.admitted.is_ok() {
                    if visit.act == Act::Advance {
                        self.advanced.insert(key);
                    }
                    return Ok(());
                }
                let current = self.held.of(&visit.lease).map(|(_, token)| token);
                let its_own = visit.shown == visit.lease && current == Some(visit.token);
                if its_own && self.advanced.contains(&key) {
                    let why = format!("the grant in force was refused: {visit:?}");
                    return Err(Violation::of("I23", why));
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

    const WRITE: Act = Act::Write { read: 0, wrote: 1 };

    #[test]
    fn a_guard_that_refuses_the_holder_is_noticed() {
        let mut scene = Scene::of(GuardsAdmitTheHolder::default());
        scene.grant("a", 1, 5, 1).unwrap();
        scene.visit(1, 5, Act::Advance, Ok(())).unwrap();
        broken(scene.visit(1, 5, WRITE, Err(Some(9))), "I23");
    }

    #[test]
    fn a_guard_may_refuse_a_grant_that_has_ended() {
        let mut scene = Scene::of(GuardsAdmitTheHolder::default());
        scene.grant("a", 1, 5, 1).unwrap();
        scene.visit(1, 5, Act::Advance, Ok(())).unwrap();
        scene.release("a", 1, 5, 2).unwrap();
        scene.visit(1, 5, WRITE, Err(Some(9))).unwrap();
    }
}
