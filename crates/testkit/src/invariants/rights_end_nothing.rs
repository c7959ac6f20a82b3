//! I41: a change of rights or of settings ends no grant and no session: what ends in its entry, ends
//! by time.

use ringfence_core::{Command, EndCause, Event, SessionEnd};

use super::{Invariant, Step};

pub(super) struct RightsEndNothing;

impl Invariant for RightsEndNothing {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        let asked = step.entry.command.bare();
        if !matches!(asked, Command::ChangeAccess(_) | Command::Configure(_)) {
            return Ok(());
        }
        let ended = step.events.iter().find(|event| match event {
            Event::Ended { cause, .. } => *cause != EndCause::Expired,
            Event::SessionEnded { cause, .. } => *cause != SessionEnd::Expired,
            _ => false,
        });
        match ended {
            Some(event) => Err(format!("a change of rights or settings made {event:?}")),
            None => Ok(()),
        }
    }
}
