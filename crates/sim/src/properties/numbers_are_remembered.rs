//! I21: a request number is remembered until its client has confirmed the answer: a repetition has
//! no effect of its own and gets the same answer, or the present one of an acquire. The id of an
//! `Open` is remembered until 60 s of cluster time after its session's end.

use std::collections::BTreeMap;

use ringfence_core::{Acquired, Ask, Command, Event, OPEN_AGE_MAX, OpenId, Outcome, Rejection};

use super::Property;
use crate::observe::{Applied, At, Observation, Violation};

#[derive(Default)]
pub(super) struct NumbersAreRemembered {
    sessions: BTreeMap<u64, Known>,
    opens: BTreeMap<OpenId, u64>,
    /// When a session ended, in cluster time.
    ended: BTreeMap<u64, u64>,
    time: u64,
}

#[derive(Default)]
struct Known {
    lowest: u64,
    answers: BTreeMap<u64, Outcome>,
}

impl Property for NumbersAreRemembered {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) if applied.first => {
                self.entry(applied).map_err(|why| Violation::of("I21", why))
            }
            _ => Ok(()),
        }
    }
}

impl NumbersAreRemembered {
    fn entry(&mut self, applied: &Applied) -> Result<(), String> {
        let not_ready = Outcome::Rejected(Rejection::NotReady);
        if applied.outcome == not_ready {
            return Ok(());
        }
        self.time = self.time.max(applied.entry.time.0);
        for event in &applied.events {
            if let Event::SessionEnded { session, .. } = event {
                self.ended.insert(session.get(), self.time);
                self.sessions.remove(&session.get());
            }
        }
        match applied.entry.command.bare() {
            Command::Open(open) => self.open(open.id, &applied.outcome),
            Command::Request(request) => {
                let session = request.session.get();
                if self.ended.contains_key(&session) || is_stranger(&applied.outcome) {
                    return Ok(());
                }
                let known = self.sessions.entry(session).or_default();
                let number = request.number.get();
                known.lowest = known.lowest.max(request.lowest.get());
                let lowest = known.lowest;
                known.answers.retain(|known, _| *known >= lowest);
                if number < lowest {
                    return Ok(());
                }
                let acquires = matches!(request.ask, Ask::Acquire(_));
                match known.answers.insert(number, applied.outcome.clone()) {
                    Some(before) if !follows(&before, &applied.outcome, acquires) => Err(format!(
                        "request {number} of session {session} was answered {before:?}, and \
                         repeated {:?}",
                        applied.outcome
                    )),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, id: OpenId, outcome: &Outcome) -> Result<(), String> {
        let Outcome::Opened(opened) = outcome else {
            return Ok(());
        };
        let session = opened.session.get();
        match self.opens.insert(id, session) {
            Some(before) if before != session => {
                let ended = self.ended.get(&before);
                let forgotten = ended.is_some_and(|at| at + OPEN_AGE_MAX.0 < self.time);
                if forgotten {
                    return Ok(());
                }
                Err(format!("{id:?} opened session {before} and now {session}"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether the request was not taken for the session's.
fn is_stranger(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Rejected(
            Rejection::WrongSecret
                | Rejection::SessionExpired { .. }
                | Rejection::OtherPrincipal
                | Rejection::Banned { .. }
                | Rejection::TokenRevoked { .. }
        )
    )
}

/// Whether a repetition may be answered so.
fn follows(before: &Outcome, now: &Outcome, acquires: bool) -> bool {
    use std::mem::discriminant;
    match (before, now) {
        // A number that was used for something else says so each time.
        (_, Outcome::Rejected(Rejection::RequestMismatch { .. }))
        | (Outcome::Rejected(Rejection::RequestMismatch { .. }), _) => true,
        (_, Outcome::Rejected(Rejection::StaleRequest { .. })) => false,
        // A waiter whose right is gone when its turn comes.
        (
            Outcome::Acquired(Acquired::Waiting { .. }),
            Outcome::Rejected(Rejection::PermissionDenied { .. }),
        ) => acquires,
        (Outcome::Rejected(one), Outcome::Rejected(other)) => {
            discriminant(one) == discriminant(other)
        }
        (Outcome::Acquired(one), Outcome::Acquired(other)) if acquires => match (one, other) {
            (Acquired::Waiting { .. }, _) => true,
            (Acquired::Granted(one), Acquired::Granted(other)) => one.token == other.token,
            (Acquired::Granted(one), Acquired::Ended { token, .. }) => one.token == *token,
            (Acquired::Refused(one), Acquired::Refused(other)) => {
                discriminant(one) == discriminant(other)
            }
            (one, other) => discriminant(one) == discriminant(other),
        },
        (Outcome::Cancelled(_), Outcome::Cancelled(_)) => true,
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::{Millis, SessionEnd};

    use super::super::scene::{
        Scene, acquire, broken, number, release, request, session, session_ended_event, token,
    };
    use super::*;

    fn scene() -> Scene<NumbersAreRemembered> {
        let mut scene = Scene::of(NumbersAreRemembered::default());
        scene.open(1, 1_000).unwrap();
        scene
    }

    #[test]
    fn another_answer_to_the_same_number_is_noticed() {
        let mut scene = scene();
        scene.grant("a", 1, 5, 2).unwrap();
        broken(scene.grant("a", 1, 6, 2), "I21");
    }

    #[test]
    fn a_refusal_that_is_forgotten_is_noticed() {
        let mut scene = scene();
        let refused = Outcome::Acquired(Acquired::Refused(Rejection::LockDelay {
            remaining: Millis(5),
        }));
        let asked = || request(1, 2, acquire("a"));
        scene.apply(asked(), refused, Vec::new()).unwrap();
        broken(scene.grant("a", 1, 5, 2), "I21");
    }

    #[test]
    fn a_number_that_is_called_stale_before_it_was_confirmed_is_noticed() {
        let mut scene = scene();
        scene.release("a", 1, 5, 2).unwrap();
        let stale = Outcome::Rejected(Rejection::StaleRequest {
            number: number(2),
            lowest: number(3),
        });
        let again = request(1, 2, release("a", 5));
        broken(scene.apply(again, stale, Vec::new()), "I21");
    }

    #[test]
    fn an_answer_may_follow_what_became_of_the_grant() {
        let mut scene = scene();
        scene.grant("a", 1, 5, 2).unwrap();
        let ended = Outcome::Acquired(Acquired::Ended {
            name: super::super::scene::name("a"),
            token: token(5),
            cause: None,
        });
        let again = request(1, 2, acquire("a"));
        scene.apply(again, ended, Vec::new()).unwrap();
    }

    #[test]
    fn an_open_that_is_forgotten_with_its_session_is_noticed_for_a_minute() {
        let reopened = || ringfence_core::Opened {
            session: session(2),
            ttl: Millis(1_000),
            acquired: None,
            repeated: false,
        };
        let open = |scene: &mut Scene<NumbersAreRemembered>| {
            let open = Command::Open(ringfence_core::Open {
                id: OpenId::new([1; 16]),
                secret: super::super::scene::secret(1),
                seen: None,
                ttl: Millis(1_000),
                identity: ringfence_core::Identity::parse("").unwrap(),
                acquire: None,
            });
            scene.apply(open, Outcome::Opened(reopened()), Vec::new())
        };
        let mut scene = scene();
        scene
            .tick(vec![session_ended_event(1, SessionEnd::Closed)])
            .unwrap();
        broken(open(scene.wait(60_000)), "I21");
        let mut scene = self::scene();
        scene
            .tick(vec![session_ended_event(1, SessionEnd::Closed)])
            .unwrap();
        open(scene.wait(60_001)).unwrap();
    }
}
