//! I7: a session never ends sooner than its TTL after a node received the last request of it that
//! was acknowledged, in true time and however fast the nodes' clocks run within their bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfence_check::history::{Op, Outcome};
use ringfence_core::{Event, SessionEnd};

use super::track::Lives;
use super::{Bounds, Property};
use crate::observe::{At, Kept, Observation, Violation};

pub(super) struct NoEarlyEnd {
    bounds: Bounds,
    lives: Lives,
    ttls: BTreeMap<u64, Duration>,
    /// When each try was received first.
    received: BTreeMap<u64, At>,
    tries: BTreeMap<u64, Option<u64>>,
    /// When the last request was received that was acknowledged, by session.
    alive: BTreeMap<u64, At>,
    expired: BTreeMap<u64, At>,
}

impl NoEarlyEnd {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            lives: Lives::default(),
            ttls: BTreeMap::new(),
            received: BTreeMap::new(),
            tries: BTreeMap::new(),
            alive: BTreeMap::new(),
            expired: BTreeMap::new(),
        }
    }

    fn acknowledged(&mut self, id: u64, session: u64) -> Result<(), Violation> {
        let Some(&at) = self.received.get(&id) else {
            return Ok(());
        };
        let alive = self.alive.entry(session).or_insert(at);
        *alive = at.max(*alive);
        self.judge(session)
    }

    fn judge(&self, session: u64) -> Result<(), Violation> {
        let seen = self.alive.get(&session).zip(self.ttls.get(&session));
        let Some(((alive, ttl), ended)) = seen.zip(self.expired.get(&session)) else {
            return Ok(());
        };
        let earliest = *alive + self.bounds.least_true(*ttl);
        if *ended >= earliest {
            return Ok(());
        }
        let why = format!(
            "session {session} with TTL {ttl:?} was alive at {alive:?} and ended at {ended:?}"
        );
        Err(Violation::of("I7", why))
    }

    fn entry(&mut self, at: At, applied: &crate::observe::Applied) -> Result<(), Violation> {
        self.lives.move_time(&applied.entry, &applied.outcome);
        for event in &applied.events {
            match event {
                Event::SessionEnded {
                    session,
                    cause: SessionEnd::Expired,
                } => {
                    let session = session.get();
                    if let Some(life) = self.lives.living.get(&session) {
                        let (due, now) = (self.lives.deadline(life), self.lives.time);
                        if now < due {
                            let why = format!("session {session} ended at {now}, due at {due}");
                            return Err(Violation::of("I7", why));
                        }
                    }
                    self.expired.insert(session, at);
                    self.judge(session)?;
                }
                Event::SessionOpened { session } => {
                    if let ringfence_core::Outcome::Opened(opened) = &applied.outcome {
                        let ttl = Duration::from_millis(opened.ttl.0);
                        self.ttls.insert(session.get(), ttl);
                    }
                }
                _ => {}
            }
        }
        let (outcome, events) = (&applied.outcome, &applied.events);
        self.lives.take(&applied.entry, outcome, events);
        Ok(())
    }
}

/// Whether the answer shows that the request was logged and taken for the session's.
fn keeps_alive(op: &Op, outcome: &Outcome) -> bool {
    match (op, outcome) {
        (
            Op::Check { .. } | Op::Get { .. } | Op::Close | Op::Revoke { .. } | Op::Evict { .. },
            _,
        ) => false,
        (_, Outcome::Unknown { .. } | Outcome::NotDone { .. } | Outcome::SessionExpired) => false,
        (_, Outcome::Refused { reason }) => reason == "HELD" || reason == "LIMIT_EXCEEDED",
        _ => true,
    }
}

impl Property for NoEarlyEnd {
    fn see(&mut self, at: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) if applied.first => return self.entry(at, applied),
            Observation::Received { id, .. } => {
                self.received.entry(*id).or_insert(at);
            }
            Observation::Asked(asked) => {
                let counts = keeps_alive(&asked.op, &Outcome::Done);
                self.tries
                    .insert(asked.id, asked.session.filter(|_| counts));
            }
            Observation::Answered(answered) => {
                let session = match answered.outcome {
                    Outcome::Opened { session, .. } => Some(session),
                    _ => self.tries.remove(&answered.id).flatten(),
                };
                let counts = keeps_alive(&Op::Cancel { request: 0 }, &answered.outcome);
                if let Some(session) = session.filter(|_| counts) {
                    self.acknowledged(answered.id, session)?;
                }
                self.received.remove(&answered.id);
            }
            Observation::KeptAlive {
                id,
                session,
                what: Kept::Alive,
                ..
            } => return self.acknowledged(*id, *session),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{BOUNDS, Scene, broken, session_ended_event};
    use super::*;

    fn scene() -> Scene<NoEarlyEnd> {
        let mut scene = Scene::of(NoEarlyEnd::new(BOUNDS));
        scene.term_start().unwrap();
        scene.open(1, 1_000).unwrap();
        scene
    }

    #[test]
    fn an_end_before_the_logged_deadline_is_noticed() {
        let mut scene = scene();
        let end = session_ended_event(1, SessionEnd::Expired);
        broken(scene.wait(999).tick(vec![end]), "I7");
    }

    #[test]
    fn an_end_within_the_ttl_of_an_acknowledged_keep_alive_is_noticed() {
        let mut scene = scene();
        // Cluster time has run on by two seconds meanwhile, as a broken leader's would.
        scene.wait(10).ask_keep_alive(7, 1).unwrap();
        scene.kept(7, 1, Kept::Alive).unwrap();
        scene.wait(980);
        scene.time += 2_000;
        let end = session_ended_event(1, SessionEnd::Expired);
        broken(scene.tick(vec![end]), "I7");
    }

    #[test]
    fn an_acknowledgement_behind_the_end_is_noticed_as_well() {
        let mut scene = scene();
        scene.wait(900).ask_keep_alive(7, 1).unwrap();
        let end = session_ended_event(1, SessionEnd::Expired);
        scene.wait(150).tick(vec![end]).unwrap();
        broken(scene.wait(5).kept(7, 1, Kept::Alive), "I7");
    }

    #[test]
    fn an_end_in_time_is_none_of_it() {
        let mut scene = scene();
        scene.wait(10).ask_keep_alive(7, 1).unwrap();
        scene.kept(7, 1, Kept::Alive).unwrap();
        let end = session_ended_event(1, SessionEnd::Expired);
        scene.wait(1_000).tick(vec![end]).unwrap();
    }
}
