//! E1, as a process sees it: inside one term of client-go's loop it is never granted the lease again,
//! however long it was stopped: each renewal is answered with the token that its term began with.
//!
//! The log's side of E1, and E2, stand among the invariants of every entry.

use std::collections::BTreeMap;

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct ElectionsKeepTheirTerms {
    /// The token of each process whose loop leads.
    leading: BTreeMap<u32, u64>,
}

impl Property for ElectionsKeepTheirTerms {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::ElectorHolds { elector, token } => {
                let began = *self.leading.entry(*elector).or_insert(*token);
                if began != *token {
                    let why = format!(
                        "elector {elector} is in the term of token {began}, and was granted {token}"
                    );
                    return Err(Violation::of("E1", why));
                }
            }
            Observation::ElectorEnded { elector } => {
                self.leading.remove(elector);
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

    fn holds(token: u64) -> Observation {
        Observation::ElectorHolds { elector: 1, token }
    }

    #[test]
    fn a_second_grant_inside_a_term_is_noticed() {
        let mut scene = Scene::of(ElectionsKeepTheirTerms::default());
        scene.see(holds(5)).unwrap();
        scene.see(holds(5)).unwrap();
        broken(scene.see(holds(6)), "E1");
    }

    #[test]
    fn a_term_that_ended_is_followed_by_another_one() {
        let mut scene = Scene::of(ElectionsKeepTheirTerms::default());
        scene.see(holds(5)).unwrap();
        scene.see(Observation::ElectorEnded { elector: 1 }).unwrap();
        scene.see(holds(6)).unwrap();
    }
}
