//! I11: only the holding session, with the current token, releases or hands over; every other end
//! of a grant has the command that its cause names, or none if time is the cause.

use ringfence_core::{
    Ask, Command, EndCause, Event, FencingToken, LeaseName, PodSeen, PodUid, Secret, SessionId,
};

use super::{Invariant, Step};

pub(super) struct OnlyTheHolder;

impl Invariant for OnlyTheHolder {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        for event in &step.events {
            let Event::Ended {
                name,
                token,
                session,
                cause,
                ..
            } = event
            else {
                continue;
            };
            let asked = match cause {
                EndCause::Expired => true,
                EndCause::Released | EndCause::Transferred { .. } => {
                    gave_up(step, *session, name, *token, cause)
                }
                EndCause::Closed => closed(step, *session),
                EndCause::Revoked { .. } => match step.entry.command.bare() {
                    Command::Revoke(revoke) => revoke.name == *name && revoke.token == *token,
                    // The deletion of its object, see E2.
                    Command::WriteObject(write) => write.name == *name,
                    _ => false,
                },
                EndCause::Evicted { .. } => {
                    matches!(step.entry.command.bare(), Command::Evict(evict)
                    if evict.session == *session)
                }
                EndCause::PodEnded { uid, seen } => {
                    names_pod(step.entry.command.bare(), uid, *seen)
                }
            };
            if !asked {
                return Err(format!("no entitled session asked for {event:?}"));
            }
        }
        Ok(())
    }
}

/// Whether this command ends sessions of that Pod for that reason.
#[must_use]
pub fn names_pod(command: &Command, uid: &PodUid, seen: PodSeen) -> bool {
    match command {
        Command::PodEnded(ended) => ended.uid == *uid && ended.seen == seen,
        Command::OpenForPod(open) => open.pod.uid() == uid && seen == PodSeen::Restarted,
        _ => false,
    }
}

fn proven(step: &Step, session: SessionId, secret: &Secret) -> bool {
    let known = step.before.session(session);
    known.is_some_and(|known| known.secret == *secret)
}

fn gave_up(
    step: &Step,
    session: SessionId,
    name: &LeaseName,
    token: FencingToken,
    cause: &EndCause,
) -> bool {
    let request = match step.entry.command.bare() {
        Command::Request(request) => request,
        // Of a term, by its own process: see E2.
        Command::WriteObject(write) => {
            let object = step.before.object(name);
            let term = object.and_then(|object| object.term.as_ref());
            return write.name == *name && term.is_some_and(|term| term.token == token);
        }
        _ => return false,
    };
    let named = match (&request.ask, cause) {
        (Ask::Release { name, token, .. }, EndCause::Released)
        | (Ask::Transfer { name, token, .. }, EndCause::Transferred { .. }) => (name, *token),
        _ => return false,
    };
    named == (name, token) && request.session == session && proven(step, session, &request.secret)
}

fn closed(step: &Step, session: SessionId) -> bool {
    match step.entry.command.bare() {
        Command::Close {
            session: named,
            secret,
        } => *named == session && proven(step, session, secret),
        Command::Request(request) => {
            matches!(request.ask, Ask::Release { close: true, .. })
                && request.session == session
                && proven(step, session, &request.secret)
        }
        _ => false,
    }
}
