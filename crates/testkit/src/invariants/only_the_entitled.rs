//! I37: once rights bind, no lease is granted to a session whose principal is banned or may not
//! acquire it at that entry, whether it asked, waited or was handed the lease; and no
//! waiter that may have it is refused. One that cluster tokens alone prove may have it while one of
//! them is left.

use ringfence_core::{Event, LeaseName, Mode, Principal, SessionId, Verb, WaitEnd};
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
        let may = |id: SessionId, name: &LeaseName| {
            let session = step.after.session(id)?;
            let owner = session.owner.as_ref();
            let entitled =
                !rights.ban(owner) && rights.allow(owner, Verb::Acquire, To::Lease(name));
            Some((owner, entitled))
        };
        for event in &step.events {
            match event {
                Event::Granted(granted) => {
                    let may = may(granted.session, &granted.name);
                    if !may.is_some_and(|(_, entitled)| entitled) {
                        return Err(format!(
                            "{may:?} may not acquire what is granted: {granted:?}"
                        ));
                    }
                }
                Event::WaitEnded {
                    name,
                    session,
                    why: WaitEnd::Refused,
                    ..
                } => {
                    let proven = |owner: Option<&Principal>| {
                        owner.is_none_or(|owner| {
                            !owner.as_str().starts_with("token:") || rights.has_token(owner)
                        })
                    };
                    if let Some((owner, true)) = may(*session, name)
                        && proven(owner)
                    {
                        return Err(format!("{owner:?} may acquire {name}, and was refused it"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
