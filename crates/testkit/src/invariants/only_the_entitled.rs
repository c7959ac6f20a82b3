//! I34: once rights bind, no lease is granted to a session whose principal is banned or may not
//! acquire it at that entry, whether it asked, waited or was handed the lease.

use ringfence_core::{Event, Mode, Verb};
use ringfence_model::rights::{Rights, To};

use super::{Invariant, Step};

pub(super) struct OnlyTheEntitled;

impl Invariant for OnlyTheEntitled {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        // Grants follow the command, so a change of rights counts for what its own entry grants.
        let rights = Rights::of(&step.after.access);
        if rights.mode != Mode::Enforced {
            return Ok(());
        }
        for event in &step.events {
            let Event::Granted(granted) = event else {
                continue;
            };
            let session = step.after.session(granted.session);
            let owner = session.and_then(|session| session.owner.as_ref());
            let may = session.is_some()
                && !rights.ban(owner)
                && rights.allow(owner, Verb::Acquire, To::Lease(&granted.name));
            if !may {
                return Err(format!(
                    "{owner:?} may not acquire what is granted: {granted:?}"
                ));
            }
        }
        Ok(())
    }
}
