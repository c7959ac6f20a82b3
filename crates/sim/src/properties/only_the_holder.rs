//! I11: only the session that holds a grant gives it up, with its secret and the current token.
//! Every other end of a grant has the command that its cause names, or none if time is the cause.

use std::collections::BTreeMap;

use ringfence_core::{Ask, Command, EndCause, Event, Secret, SessionId};

use super::Property;
use crate::observe::{Applied, At, Observation, Violation};

#[derive(Default)]
pub(super) struct OnlyTheHolder {
    secrets: BTreeMap<u64, Secret>,
}

impl Property for OnlyTheHolder {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let Observation::Applied(applied) = seen else {
            return Ok(());
        };
        if !applied.first {
            return Ok(());
        }
        if let Command::Open(open) = applied.entry.command.bare() {
            for event in &applied.events {
                if let Event::SessionOpened { session } = event {
                    self.secrets.insert(session.get(), open.secret);
                }
            }
        }
        let stray = applied
            .events
            .iter()
            .find(|event| !self.entitled(applied, event));
        match stray {
            Some(event) => {
                let why = format!(
                    "no entitled session asked for {event:?}: {:?}",
                    applied.entry
                );
                Err(Violation::of("I11", why))
            }
            None => Ok(()),
        }
    }
}

impl OnlyTheHolder {
    fn entitled(&self, applied: &Applied, event: &Event) -> bool {
        let Event::Ended {
            name,
            token,
            session,
            cause,
            ..
        } = event
        else {
            return true;
        };
        let command = applied.entry.command.bare();
        match cause {
            EndCause::Expired => true,
            EndCause::Released | EndCause::Transferred { .. } => match command {
                Command::Request(request) if self.proven(*session, &request.secret) => {
                    let (asked, with) = match &request.ask {
                        Ask::Release { name, token, .. } | Ask::Transfer { name, token, .. } => {
                            (name, token)
                        }
                        Ask::Acquire(_) | Ask::Cancel { .. } => return false,
                    };
                    request.session == *session && asked == name && with == token
                }
                // Of a term, by its own process: see E2 among the invariants of every entry.
                Command::WriteObject(write) => write.name == *name,
                _ => false,
            },
            EndCause::Closed => match command {
                Command::Close {
                    session: asked,
                    secret,
                } => asked == session && self.proven(*session, secret),
                Command::Request(request) => {
                    matches!(request.ask, Ask::Release { close: true, .. })
                        && request.session == *session
                        && self.proven(*session, &request.secret)
                }
                _ => false,
            },
            EndCause::Revoked { .. } => matches!(command, Command::Revoke(revoke)
                if revoke.name == *name && revoke.token == *token),
            EndCause::Evicted { .. } => matches!(command, Command::Evict(evict)
                if evict.session == *session),
            EndCause::PodEnded { uid, seen } => {
                ringfence_testkit::invariants::names_pod(command, uid, *seen)
            }
        }
    }

    fn proven(&self, session: SessionId, secret: &Secret) -> bool {
        self.secrets.get(&session.get()) == Some(secret)
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::Outcome;

    use super::super::scene::{Scene, broken, ended_event, release, request, token};
    use super::*;

    fn scene() -> Scene<OnlyTheHolder> {
        let mut scene = Scene::of(OnlyTheHolder::default());
        scene.open(1, 1_000).unwrap();
        scene.open(2, 1_000).unwrap();
        scene.grant("a", 1, 5, 1).unwrap();
        scene
    }

    fn released(by: u64, with: u64) -> (Command, Outcome, Vec<Event>) {
        (
            request(by, 2, release("a", with)),
            Outcome::Released { token: token(5) },
            vec![ended_event("a", 1, 5, EndCause::Released)],
        )
    }

    #[test]
    fn a_release_by_another_session_or_with_another_token_is_noticed() {
        let mut scene = scene();
        for (by, with) in [(2, 5), (1, 4)] {
            let (command, outcome, events) = released(by, with);
            broken(scene.apply(command, outcome, events), "I11");
        }
        scene.release("a", 1, 5, 2).unwrap();
    }

    #[test]
    fn an_end_without_a_command_is_noticed() {
        let mut scene = scene();
        for cause in [EndCause::Released, EndCause::Closed] {
            broken(scene.tick(vec![ended_event("a", 1, 5, cause)]), "I11");
        }
    }
}
