//! I3: a lease has at most one holder, and the state says what the events said.

use std::collections::BTreeMap;

use ringfence_core::{Event, FencingToken, LeaseName, SessionId};

use super::{Invariant, Step};

/// The grants in force, by what the events said.
#[derive(Default)]
pub(super) struct OneHolder {
    held: BTreeMap<LeaseName, (FencingToken, SessionId)>,
}

impl Invariant for OneHolder {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        for event in &step.events {
            match event {
                Event::Granted(new) => {
                    let grant = (new.token, new.session);
                    if let Some(old) = self.held.insert(new.name.clone(), grant) {
                        return Err(format!("{} has {old:?} and {grant:?}", new.name));
                    }
                }
                Event::Ended {
                    name,
                    token,
                    session,
                    ..
                } => {
                    let ended = (*token, *session);
                    let held = self.held.remove(name);
                    if held != Some(ended) {
                        return Err(format!("{name}: {ended:?} ended, but {held:?} held it"));
                    }
                }
                _ => {}
            }
        }
        let leases = step.after.leases.iter();
        let held: BTreeMap<_, _> = leases
            .filter_map(|lease| {
                let grant = lease.grant.as_ref()?;
                Some((lease.name.clone(), (grant.token, grant.session)))
            })
            .collect();
        if held != self.held {
            return Err(format!("the state says {held:?}, events {:?}", self.held));
        }
        Ok(())
    }
}
