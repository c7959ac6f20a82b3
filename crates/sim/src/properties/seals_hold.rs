//! I26: from the moment at which a lease is reported held, no smaller token is admitted at the guards
//! that it is sealed at, unless the store was set back and its mark has fallen.

use std::collections::BTreeMap;

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct SealsHold {
    /// The greatest token that each store is sealed with.
    seals: BTreeMap<String, u64>,
}

impl Property for SealsHold {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Sealed(sealed) => {
                let stores = sealed.stores.iter();
                for store in stores.filter(|store| !sealed.unsealed.contains(store)) {
                    let token = self.seals.entry(store.clone()).or_default();
                    *token = sealed.token.max(*token);
                }
            }
            Observation::StoreRestored(restored) => {
                if let Some(token) = self.seals.get_mut(&restored.store) {
                    *token = restored.mark.min(*token);
                }
            }
            Observation::Guard(visit) if visit.admitted.is_ok() => {
                let sealed = self.seals.get(&visit.store).copied().unwrap_or_default();
                if visit.token < sealed {
                    let why = format!("sealed with {sealed}, and admitted: {visit:?}");
                    return Err(Violation::of("I26", why));
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
    use super::super::scene::{Scene, broken};
    use super::*;
    use crate::observe::Act;

    const WRITE: Act = Act::Write { read: 0, wrote: 1 };

    fn sealed_with_5() -> Scene<SealsHold> {
        let mut scene = Scene::of(SealsHold::default());
        scene.sealed(2, 5, &[]).unwrap();
        scene
    }

    #[test]
    fn a_smaller_token_at_a_sealed_store_is_noticed() {
        let mut scene = sealed_with_5();
        scene.visit(2, 5, WRITE, Ok(())).unwrap();
        scene.visit(1, 4, WRITE, Err(Some(5))).unwrap();
        broken(scene.visit(1, 4, WRITE, Ok(())), "I26");
        broken(sealed_with_5().visit(1, 4, Act::Advance, Ok(())), "I26");
    }

    #[test]
    fn an_unsealed_store_may_admit_it() {
        let mut scene = Scene::of(SealsHold::default());
        scene.sealed(2, 5, &["store"]).unwrap();
        scene.visit(1, 4, WRITE, Ok(())).unwrap();
    }

    #[test]
    fn a_seal_is_worth_what_a_restore_has_left_of_the_mark() {
        let mut scene = sealed_with_5();
        scene.restore(9, 0).unwrap();
        broken(scene.visit(1, 4, WRITE, Ok(())), "I26");
        let mut scene = sealed_with_5();
        scene.restore(3, 0).unwrap();
        scene.visit(1, 4, WRITE, Ok(())).unwrap();
        broken(scene.visit(1, 2, WRITE, Ok(())), "I26");
    }
}
