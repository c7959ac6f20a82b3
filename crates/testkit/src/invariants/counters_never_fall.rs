//! I16: the counter never falls once a cluster is formed, nor the floor of a name, be it
//! remembered or forgotten; and time never goes back.

use super::{Invariant, Step};

pub(super) struct CountersNeverFall;

impl Invariant for CountersNeverFall {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        let (before, after) = (&step.before.header, &step.after.header);
        let pairs = [
            (
                "the last token",
                before.tokens.granted(),
                after.tokens.granted(),
            ),
            ("time", before.time.0, after.time.0),
            ("the term", before.term, after.term),
            ("the next session", before.next_session, after.next_session),
            ("the next place", before.next_place, after.next_place),
        ];
        for (what, before, after) in pairs {
            if after < before {
                return Err(format!("{what} fell from {before} to {after}"));
            }
        }
        if before.cluster.is_some() && after.tokens.reached() < before.tokens.reached() {
            let (before, after) = (before.tokens.reached(), after.tokens.reached());
            return Err(format!("the counter fell from {before} to {after}"));
        }
        if after.tokens.reached() < after.tokens.granted() || after.forgotten < before.forgotten {
            return Err(format!("the counter is behind: {after:?}"));
        }
        for lease in &step.before.leases {
            let floor = match step.after.lease(&lease.name) {
                // One that is forgotten and waited for in the same entry has no floor of its own.
                Some(lease) => lease.floor.or(after.forgotten),
                None => after.forgotten,
            };
            if floor < lease.floor {
                let name = &lease.name;
                return Err(format!(
                    "{name}: the floor fell {:?} to {floor:?}",
                    lease.floor
                ));
            }
        }
        Ok(())
    }
}
