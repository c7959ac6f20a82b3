//! I1: in the order of a store's commits, admitted tokens never fall; what is admitted shows the
//! lease that the guard is bound to; and nothing that a holder wrote is lost to one who had read
//! before it. A store that was set back begins with what it was set back to.

use std::collections::BTreeMap;

use super::Property;
use crate::observe::{Act, At, Observation, Violation, Visit};

#[derive(Default)]
pub(super) struct AdmittedTokensRise {
    stores: BTreeMap<String, Store>,
}

#[derive(Default)]
struct Store {
    token: u64,
    version: u64,
    /// The mark with which it was set back, if it was: up to this token holders may have read what
    /// is gone.
    restored: Option<u64>,
}

impl Property for AdmittedTokensRise {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let visit = match seen {
            Observation::Guard(visit) => visit,
            Observation::StoreRestored(restored) => {
                let store = Store {
                    token: restored.mark,
                    version: restored.version,
                    restored: Some(restored.mark),
                };
                self.stores.insert(restored.store.clone(), store);
                return Ok(());
            }
            _ => return Ok(()),
        };
        if visit.admitted.is_err() {
            return Ok(());
        }
        let store = self.stores.entry(visit.store.clone()).or_default();
        store.admit(visit).map_err(|why| Violation::of("I1", why))
    }

    fn outlives_a_rollback(&self) -> bool {
        true
    }
}

impl Store {
    fn admit(&mut self, visit: &Visit) -> Result<(), String> {
        let (name, token) = (&visit.store, visit.token);
        if visit.shown != visit.lease {
            let (shown, lease) = (&visit.shown, &visit.lease);
            return Err(format!(
                "{name} guards {lease} and admitted a fence of {shown}"
            ));
        }
        if token < self.token {
            return Err(format!("{name} admitted {token} after {}", self.token));
        }
        self.token = token;
        if let Act::Write { read, wrote } = visit.act {
            let of_the_past = self.restored.is_some_and(|mark| token <= mark);
            if read != self.version && !of_the_past {
                let lost = self.version;
                return Err(format!(
                    "{name}: version {lost} is lost, token {token} had read {read} and wrote {wrote}"
                ));
            }
            self.version = wrote;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, broken};
    use super::*;

    fn scene() -> Scene<AdmittedTokensRise> {
        Scene::of(AdmittedTokensRise::default())
    }

    const fn write(read: u64) -> Act {
        Act::Write {
            read,
            wrote: read + 1,
        }
    }

    #[test]
    fn a_smaller_token_behind_a_greater_one_is_noticed() {
        let mut scene = scene();
        scene.visit(1, 8, write(0), Ok(())).unwrap();
        scene.visit(2, 9, Act::Advance, Ok(())).unwrap();
        scene.visit(1, 8, write(1), Err(Some(9))).unwrap();
        broken(scene.visit(1, 8, write(1), Ok(())), "I1");
    }

    #[test]
    fn a_lost_update_is_noticed_even_where_tokens_rise() {
        let mut scene = scene();
        scene.visit(1, 8, write(0), Ok(())).unwrap();
        // The new holder had read version 0 before it advanced the guard.
        broken(scene.visit(2, 9, write(0), Ok(())), "I1");
    }

    #[test]
    fn a_store_that_was_set_back_takes_what_its_holder_had_read_before_and_no_other() {
        let mut scene = scene();
        scene.visit(1, 8, write(0), Ok(())).unwrap();
        scene.visit(1, 8, write(1), Ok(())).unwrap();
        scene.restore(8, 1).unwrap();
        scene.visit(1, 8, write(2), Ok(())).unwrap();
        scene.visit(2, 9, Act::Advance, Ok(())).unwrap();
        broken(scene.visit(2, 9, write(1), Ok(())), "I1");
    }

    #[test]
    fn another_leases_fence_is_noticed() {
        let visit = Visit {
            store: "store".into(),
            lease: "a".into(),
            client: 1,
            shown: "b".into(),
            token: 5,
            act: Act::Advance,
            admitted: Ok(()),
        };
        broken(scene().see(Observation::Guard(visit)), "I1");
    }
}
