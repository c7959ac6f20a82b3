//! I10: an ended session never comes back, neither in the log nor in what any client receives; and
//! session numbers are never reused.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_check::history::{Op, Outcome};
use ringfence_core::{Command, Event, Outcome as Said};

use super::Property;
use crate::observe::{Applied, At, Kept, Observation, Violation};

#[derive(Default)]
pub(super) struct NoResurrection {
    ended: BTreeSet<u64>,
    newest: u64,
    /// Sessions of which some client learned that they have ended.
    told: BTreeSet<u64>,
    /// Tries that were made when that had been reported already.
    late: BTreeMap<u64, u64>,
}

impl NoResurrection {
    fn entry(&mut self, applied: &Applied) -> Result<(), String> {
        for event in &applied.events {
            match event {
                Event::SessionOpened { session } => {
                    if session.get() <= self.newest {
                        let newest = self.newest;
                        return Err(format!("{session:?} was opened behind {newest}"));
                    }
                    self.newest = session.get();
                }
                Event::SessionEnded { session, .. } if !self.ended.insert(session.get()) => {
                    return Err(format!("{session:?} ended twice"));
                }
                Event::Granted(granted) if self.ended.contains(&granted.session.get()) => {
                    return Err(format!("{granted:?} went to a session that has ended"));
                }
                _ => {}
            }
        }
        if let (Command::Renew(renew), Said::Renewed(renewed)) =
            (&applied.entry.command, &applied.outcome)
        {
            let mut alive = renew.sessions.iter();
            let risen = alive.find(|session| {
                self.ended.contains(&session.get()) && !renewed.ended.contains(session)
            });
            if let Some(session) = risen {
                return Err(format!("{session:?} was renewed and has ended"));
            }
        }
        Ok(())
    }

    fn asked(&mut self, id: u64, sessions: impl IntoIterator<Item = u64>) {
        let late = sessions
            .into_iter()
            .find(|session| self.told.contains(session));
        late.map(|session| self.late.insert(id, session));
    }

    /// What a client learns of an end, the log has to have said before: a session that is due and
    /// not ended yet may get a fresh TTL from the next term.
    fn over(&self, session: u64) -> Result<(), String> {
        match self.ended.contains(&session) {
            true => Ok(()),
            false => Err(format!(
                "session {session} was reported to be over, and is not"
            )),
        }
    }

    fn alive(&self, id: u64, session: u64) -> Result<(), String> {
        if self.late.get(&id) == Some(&session) {
            return Err(format!(
                "session {session} was reported to be over, and is served again"
            ));
        }
        Ok(())
    }
}

impl Property for NoResurrection {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let wrong = match seen {
            Observation::Applied(applied) if applied.first => self.entry(applied),
            Observation::Asked(asked) => {
                // Repeating a close answers why the session ended.
                let counts = !matches!(asked.op, Op::Close | Op::Check { .. } | Op::Get { .. });
                self.asked(asked.id, asked.session.filter(|_| counts));
                Ok(())
            }
            Observation::KeepAliveAsked { id, sessions, .. } => {
                self.asked(*id, sessions.iter().copied());
                Ok(())
            }
            Observation::Answered(answered) => {
                match (&answered.outcome, self.late.get(&answered.id)) {
                    (Outcome::SessionExpired, _) => Ok(()),
                    (
                        Outcome::Unknown { .. } | Outcome::NotDone { .. } | Outcome::Refused { .. },
                        _,
                    ) => Ok(()),
                    (_, Some(&session)) => self.alive(answered.id, session),
                    _ => Ok(()),
                }
            }
            Observation::KeptAlive {
                id, session, what, ..
            } => match what {
                Kept::Alive => self.alive(*id, *session),
                Kept::Ended => {
                    self.told.insert(*session);
                    self.over(*session)
                }
                Kept::Untold | Kept::NotDone | Kept::Refused => Ok(()),
            },
            _ => Ok(()),
        };
        wrong.map_err(|why| Violation::of("I10", why))
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::SessionEnd;

    use super::super::scene::{Scene, acquire_op, broken, session_ended_event};
    use super::*;

    fn scene() -> Scene<NoResurrection> {
        let mut scene = Scene::of(NoResurrection::default());
        scene.open(1, 1_000).unwrap();
        scene
            .tick(vec![session_ended_event(1, SessionEnd::Expired)])
            .unwrap();
        scene
    }

    #[test]
    fn a_keep_alive_that_revives_is_noticed() {
        broken(scene().renew(1), "I10");
    }

    #[test]
    fn a_grant_to_an_ended_session_is_noticed() {
        broken(scene().grant("a", 1, 5, 1), "I10");
    }

    #[test]
    fn a_number_that_is_used_again_is_noticed() {
        broken(scene().open(1, 1_000), "I10");
    }

    #[test]
    fn an_end_that_is_told_before_it_is_so_is_noticed() {
        let mut scene = Scene::of(NoResurrection::default());
        scene.open(1, 1_000).unwrap();
        scene.ask_keep_alive(1, 1).unwrap();
        broken(scene.kept(1, 1, Kept::Ended), "I10");
    }

    #[test]
    fn a_client_that_hears_of_a_session_after_its_end_notices() {
        let mut scene = scene();
        scene.ask_keep_alive(1, 1).unwrap();
        scene.kept(1, 1, Kept::Ended).unwrap();
        scene.ask(2, 1, 1, acquire_op("a")).unwrap();
        broken(scene.answer(2, Outcome::Granted { token: 5 }), "I10");
        scene.ask_keep_alive(3, 1).unwrap();
        broken(scene.kept(3, 1, Kept::Alive), "I10");
    }
}
