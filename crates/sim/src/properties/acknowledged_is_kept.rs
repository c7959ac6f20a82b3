//! I5: what a client received is in the log, where every later leader finds it; and no request
//! takes effect twice, however often it was sent.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_check::history::{Op, Outcome};
use ringfence_core::{Command, EndCause, Event, OpenId, Outcome as Applied};

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct AcknowledgedIsKept {
    /// Session and number of the request behind each grant.
    grants: BTreeMap<u64, (u64, u64)>,
    granted: BTreeSet<(u64, u64)>,
    released: BTreeSet<u64>,
    opened: BTreeSet<u64>,
    ended: BTreeSet<u64>,
    opens: BTreeMap<OpenId, u64>,
    tries: BTreeMap<u64, (Option<u64>, Option<u64>, Op)>,
}

impl Property for AcknowledgedIsKept {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let wrong = match seen {
            Observation::Applied(applied) if applied.first => self.entry(
                applied.entry.command.bare(),
                &applied.outcome,
                &applied.events,
            ),
            Observation::Asked(asked) => {
                let what = (asked.session, asked.request, asked.op.clone());
                self.tries.insert(asked.id, what);
                Ok(())
            }
            Observation::Answered(answered) => match self.tries.remove(&answered.id) {
                Some((session, request, op)) => {
                    self.answer(session, request, &op, &answered.outcome)
                }
                None => Ok(()),
            },
            _ => Ok(()),
        };
        wrong.map_err(|why| Violation::of("I5", why))
    }
}

impl AcknowledgedIsKept {
    fn entry(
        &mut self,
        command: &Command,
        outcome: &Applied,
        events: &[Event],
    ) -> Result<(), String> {
        for event in events {
            match event {
                Event::Granted(granted) => {
                    let request = (granted.session.get(), granted.request.get());
                    if !self.granted.insert(request) {
                        return Err(format!("{request:?} was granted twice: {granted:?}"));
                    }
                    self.grants.insert(granted.token.get(), request);
                }
                Event::Ended { token, cause, .. } if *cause == EndCause::Released => {
                    self.released.insert(token.get());
                }
                Event::SessionOpened { session } => drop(self.opened.insert(session.get())),
                Event::SessionEnded { session, .. } => drop(self.ended.insert(session.get())),
                _ => {}
            }
        }
        if let (Command::Open(open), Applied::Opened(opened)) = (command, outcome) {
            let session = opened.session.get();
            let first = *self.opens.entry(open.id).or_insert(session);
            if first != session {
                return Err(format!("{:?} opened {first} and {session}", open.id));
            }
        }
        Ok(())
    }

    fn answer(
        &self,
        session: Option<u64>,
        request: Option<u64>,
        op: &Op,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let there = match (op, outcome) {
            (_, Outcome::Opened { session, .. }) => self.opened.contains(session),
            (Op::Acquire(_), Outcome::Granted { token }) => {
                let told = session.zip(request);
                told.is_none() || self.grants.get(token) == told.as_ref()
            }
            (Op::Release { token, .. }, Outcome::Released) => self.released.contains(token),
            (Op::Transfer { .. }, Outcome::Transferred { to, token }) => {
                self.grants.get(token).is_some_and(|grant| grant.0 == *to)
            }
            (Op::Close, Outcome::Closed) => session.is_none_or(|own| self.ended.contains(&own)),
            (Op::Evict { session }, Outcome::Closed) => self.ended.contains(session),
            _ => true,
        };
        if there {
            return Ok(());
        }
        Err(format!(
            "session {session:?} received {op:?}: {outcome:?}, which is not in the log"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, acquire_op, broken, granted_event};
    use super::*;

    fn scene() -> Scene<AcknowledgedIsKept> {
        Scene::of(AcknowledgedIsKept::default())
    }

    #[test]
    fn an_acknowledged_grant_that_is_not_in_the_log_is_noticed() {
        let mut scene = scene();
        scene.ask(1, 1, 1, acquire_op("a")).unwrap();
        scene.ask(2, 2, 1, acquire_op("a")).unwrap();
        scene.grant("a", 1, 5, 1).unwrap();
        scene.answer(1, Outcome::Granted { token: 5 }).unwrap();
        broken(scene.answer(2, Outcome::Granted { token: 5 }), "I5");
    }

    #[test]
    fn a_request_that_is_granted_twice_is_noticed() {
        let mut scene = scene();
        scene.grant("a", 1, 5, 1).unwrap();
        scene.release("a", 1, 5, 2).unwrap();
        broken(scene.tick(vec![granted_event("a", 1, 6, 1)]), "I5");
    }

    #[test]
    fn a_release_that_left_no_trace_is_noticed() {
        let mut scene = scene();
        let op = Op::Release {
            lease: "a".into(),
            token: 5,
            close: false,
        };
        scene.grant("a", 1, 5, 1).unwrap();
        scene.ask(1, 1, 2, op).unwrap();
        broken(scene.answer(1, Outcome::Released), "I5");
    }
}
