//! I25: when a lease is reported held, every guard that it was to be sealed at, and that is not said to
//! be unsealed, has a mark that is not below its token.

use std::collections::BTreeMap;

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct SealedGuardsAreRaised {
    /// The marks of the stores.
    marks: BTreeMap<String, u64>,
}

impl Property for SealedGuardsAreRaised {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Guard(visit) if visit.admitted.is_ok() => {
                let mark = self.marks.entry(visit.store.clone()).or_default();
                *mark = visit.token.max(*mark);
            }
            Observation::StoreRestored(restored) => {
                self.marks.insert(restored.store.clone(), restored.mark);
            }
            Observation::Sealed(sealed) => {
                for store in &sealed.stores {
                    let mark = self.marks.get(store).copied().unwrap_or_default();
                    if mark < sealed.token && !sealed.unsealed.contains(store) {
                        let why = format!("{sealed:?}, and the mark of {store} is {mark}");
                        return Err(Violation::of("I25", why));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    // Behind a rollback of the cluster the newest floor, to which a store that is set back is
    // advanced, may lie below what was granted. A restored cluster has greater floors.
    fn outlives_a_restore(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, broken};
    use super::*;
    use crate::observe::Act;

    fn scene() -> Scene<SealedGuardsAreRaised> {
        Scene::of(SealedGuardsAreRaised::default())
    }

    #[test]
    fn a_lease_that_is_held_before_its_guard_is_raised_is_noticed() {
        let mut scene = scene();
        broken(scene.sealed(1, 5, &[]), "I25");
        scene.visit(1, 5, Act::Advance, Ok(())).unwrap();
        scene.sealed(1, 5, &[]).unwrap();
        broken(scene.sealed(2, 6, &[]), "I25");
        scene.visit(2, 6, Act::Advance, Err(Some(9))).unwrap();
        broken(scene.sealed(2, 6, &[]), "I25");
    }

    #[test]
    fn a_guard_that_is_said_to_be_unsealed_may_have_any_mark() {
        scene().sealed(1, 5, &["store"]).unwrap();
    }

    #[test]
    fn a_store_that_was_set_back_has_to_be_raised_again() {
        let mut scene = scene();
        scene.visit(1, 5, Act::Advance, Ok(())).unwrap();
        scene.restore(3, 0).unwrap();
        broken(scene.sealed(1, 5, &[]), "I25");
    }
}
