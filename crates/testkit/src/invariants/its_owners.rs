//! I40: a session is its owner's for life, and once rights bind, no other principal acts for it,
//! although it knows number and secret.

use ringfence_core::{Command, Mode, Outcome, Principal, SessionEnd, SessionId};
use ringfence_model::rights::Rights;

use super::the_refused::session_of;
use super::{Invariant, Step};

pub(super) struct ItsOwners;

impl Invariant for ItsOwners {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        for before in &step.before.sessions {
            let after = step.after.session(before.id);
            if let Some(after) = after.filter(|after| after.owner != before.owner)
                && let Some(owner) = &before.owner
            {
                let now = &after.owner;
                return Err(format!(
                    "session {} was {owner}'s, and is {now:?}'s",
                    before.id
                ));
            }
        }
        if Rights::of(&step.before.access).mode != Mode::Enforced {
            return Ok(());
        }
        let Some((session, owner)) = named(step) else {
            return Ok(());
        };
        let principal = match &step.entry.command {
            Command::Called(called) => called.caller.principal.as_str(),
            _ => Principal::ANONYMOUS,
        };
        // Who knows its secret may learn that time has ended it in this entry, however long ago.
        let told = matches!(
            &step.outcome,
            Outcome::Closed {
                cause: None | Some(SessionEnd::Expired)
            }
        );
        match owner == principal || told || matches!(step.outcome, Outcome::Rejected(_)) {
            true => Ok(()),
            false => Err(format!(
                "session {session} is {owner}'s, and {principal} was answered {:?}",
                step.outcome
            )),
        }
    }
}

/// The living session with an owner that the entry asks for, and whose it is.
fn named(step: &Step) -> Option<(SessionId, &str)> {
    let command = step.entry.command.bare();
    let session = match command {
        Command::Open(open) => {
            let mut living = step.before.sessions.iter();
            living.find(|session| session.open == open.id)?
        }
        other => step.before.session(session_of(other)?)?,
    };
    Some((session.id, session.owner.as_ref()?.as_str()))
}
