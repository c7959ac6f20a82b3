//! I43: once rights bind, settings, rights, grants and sessions of others are changed only by who may:
//! who ends a session may revoke everything that it holds or waits for.

use ringfence_core::{Command, EndCause, Event, Mode, Outcome, SessionEnd, Verb, WaitEnd};
use ringfence_model::rights::{Rights, To};

use super::{Invariant, Step};

pub(super) struct OperatorsMay;

impl Invariant for OperatorsMay {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        let rights = Rights::of(&step.before.access);
        let refused = matches!(step.outcome, Outcome::Rejected(_));
        if rights.mode != Mode::Enforced || refused {
            return Ok(());
        }
        let principal = match &step.entry.command {
            Command::Called(called) => Some(&called.caller.principal),
            _ => None,
        };
        let may = match step.entry.command.bare() {
            Command::Configure(_) => rights.allow(principal, Verb::Configure, To::Cluster),
            Command::ChangeAccess(_) => rights.allow(principal, Verb::Admin, To::Cluster),
            Command::Operate { .. } => rights.allow(principal, Verb::Operate, To::Cluster),
            Command::Revoke(revoke) => {
                rights.allow(principal, Verb::Revoke, To::Lease(&revoke.name))
            }
            Command::Evict(evict) => step.events.iter().all(|event| match event {
                Event::Ended {
                    name,
                    cause: EndCause::Evicted { .. },
                    ..
                } => rights.allow(principal, Verb::Revoke, To::Lease(name)),
                Event::WaitEnded {
                    name,
                    session,
                    why: WaitEnd::SessionEnded,
                    ..
                } if *session == evict.session && evicted(step) => {
                    rights.allow(principal, Verb::Revoke, To::Lease(name))
                }
                _ => true,
            }),
            _ => true,
        };
        match may {
            true => Ok(()),
            false => Err(format!(
                "{principal:?} may not, and was answered {:?}",
                step.outcome
            )),
        }
    }
}

/// Whether a session ended by the command and not by time.
fn evicted(step: &Step) -> bool {
    matches!(
        step.outcome,
        Outcome::Closed {
            cause: Some(SessionEnd::Evicted { .. })
        }
    )
}
