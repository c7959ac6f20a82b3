//! I39: an entry that is refused for who asks, or for want of a right, changes neither settings nor
//! rights, opens and ends no session, and ends no grant; what ends in it, ends by time. A caller
//! that is not heard at all does not renew the session that it names either.

use ringfence_core::{Command, EndCause, Event, Limit, Outcome, Rejection, SessionEnd, SessionId};

use super::{Invariant, Step};

pub(super) struct TheRefused;

/// The living session that a command names.
pub(super) fn session_of(command: &Command) -> Option<SessionId> {
    match command {
        Command::Request(request) => Some(request.session),
        Command::Close { session, .. } | Command::Adopt { session, .. } => Some(*session),
        _ => None,
    }
}

impl Invariant for TheRefused {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        let Outcome::Rejected(rejection) = &step.outcome else {
            return Ok(());
        };
        let heard = match rejection {
            Rejection::Banned { .. }
            | Rejection::TokenRevoked { .. }
            | Rejection::OtherPrincipal => false,
            Rejection::PermissionDenied { .. }
            | Rejection::WouldLockOut
            | Rejection::Limit(Limit::PrincipalLeases(_) | Limit::PrincipalSessions(_)) => true,
            _ => return Ok(()),
        };
        let (before, after) = (&step.before, &step.after);
        if before.header.settings != after.header.settings || before.access != after.access {
            return Err(format!("{rejection:?}, and settings or rights are others"));
        }
        let effect = step.events.iter().find(|event| match event {
            Event::SessionOpened { .. } => true,
            Event::Ended { cause, .. } => *cause != EndCause::Expired,
            Event::SessionEnded { cause, .. } => *cause != SessionEnd::Expired,
            _ => false,
        });
        if let Some(effect) = effect {
            return Err(format!("{rejection:?}, and yet {effect:?}"));
        }
        let named = session_of(step.entry.command.bare()).filter(|_| !heard);
        let sessions = named.and_then(|id| before.session(id).zip(after.session(id)));
        if let Some((before, after)) = sessions
            && (before.seen, before.lowest) != (after.seen, after.lowest)
        {
            return Err(format!(
                "{rejection:?}, and session {} has changed",
                after.id
            ));
        }
        Ok(())
    }
}
