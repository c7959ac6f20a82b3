//! I12: a queue is served in its order. Who is handed a lease over is taken from wherever it stands;
//! no other session overtakes, and none is granted past a queue.

use std::collections::BTreeMap;

use ringfence_core::{Acquired, Command, EndCause, Event, Granted, Opened, Outcome};

use super::Property;
use crate::observe::{Applied, At, Observation, Violation};

/// Session and number of a request that waits.
type Place = (u64, u64);

#[derive(Default)]
pub(super) struct FirstInFirstOut {
    queues: BTreeMap<String, Vec<Place>>,
}

impl Property for FirstInFirstOut {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) if applied.first => {
                self.entry(applied).map_err(|why| Violation::of("I12", why))
            }
            _ => Ok(()),
        }
    }
}

impl FirstInFirstOut {
    fn entry(&mut self, applied: &Applied) -> Result<(), String> {
        let queued = queued(applied);
        let mut served = false;
        let mut handed_over = None;
        for event in &applied.events {
            match event {
                Event::Ended { name, cause, .. } => {
                    let over = matches!(cause, EndCause::Transferred { .. });
                    handed_over = over.then(|| name.clone());
                }
                Event::WaitEnded {
                    name,
                    session,
                    request,
                    ..
                } => {
                    let place = (session.get(), request.get());
                    self.queue(name.as_str())
                        .retain(|waiting| *waiting != place);
                }
                Event::Granted(granted) => {
                    let any = handed_over.take().is_some_and(|name| name == granted.name);
                    let place = (granted.session.get(), granted.request.get());
                    served |= queued.as_ref().is_some_and(|(_, own)| *own == place);
                    self.serve(granted, place, any)?;
                }
                _ => {}
            }
        }
        if let Some((name, place)) = queued {
            let queue = self.queue(&name);
            if !served && !queue.contains(&place) {
                queue.push(place);
            }
        }
        Ok(())
    }

    fn serve(&mut self, granted: &Granted, place: Place, any: bool) -> Result<(), String> {
        let queue = self.queue(granted.name.as_str());
        match queue.iter().position(|waiting| *waiting == place) {
            Some(at) if any || at == 0 => drop(queue.remove(at)),
            None if queue.is_empty() && !any => {}
            at => return Err(format!("place {at:?} of {queue:?} got {granted:?}")),
        }
        Ok(())
    }

    fn queue(&mut self, name: &str) -> &mut Vec<Place> {
        self.queues.entry(name.to_owned()).or_default()
    }
}

/// The place that the answer tells of.
fn queued(applied: &Applied) -> Option<(String, Place)> {
    match (applied.entry.command.bare(), &applied.outcome) {
        (Command::Request(request), Outcome::Acquired(Acquired::Waiting { name })) => {
            let place = (request.session.get(), request.number.get());
            Some((name.to_string(), place))
        }
        (
            Command::Open(_),
            Outcome::Opened(Opened {
                session,
                acquired: Some(Acquired::Waiting { name }),
                ..
            }),
        ) => Some((name.to_string(), (session.get(), 1))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{
        Scene, acquire, broken, ended_event, granted_event, name, release, request, session, token,
    };
    use super::*;

    /// Session 1 holds, 2 and 3 wait.
    fn scene() -> Scene<FirstInFirstOut> {
        let mut scene = Scene::of(FirstInFirstOut::default());
        scene.grant("a", 1, 5, 1).unwrap();
        for waiting in [2, 3] {
            let outcome = Outcome::Acquired(Acquired::Waiting { name: name("a") });
            let command = request(waiting, 1, acquire("a"));
            scene.apply(command, outcome, Vec::new()).unwrap();
        }
        scene
    }

    fn end_and_grant(to: u64, cause: EndCause) -> (Command, Outcome, Vec<Event>) {
        (
            request(1, 2, release("a", 5)),
            Outcome::Released { token: token(5) },
            vec![ended_event("a", 1, 5, cause), granted_event("a", to, 6, 1)],
        )
    }

    #[test]
    fn who_overtakes_is_noticed() {
        let (command, outcome, events) = end_and_grant(3, EndCause::Released);
        broken(scene().apply(command, outcome, events), "I12");
    }

    #[test]
    fn who_is_granted_past_the_queue_is_noticed() {
        let (command, outcome, events) = end_and_grant(4, EndCause::Released);
        broken(scene().apply(command, outcome, events), "I12");
    }

    #[test]
    fn a_hand_over_may_take_any_who_waits_and_nobody_else() {
        let to = |to| EndCause::Transferred { to: session(to) };
        let (command, outcome, events) = end_and_grant(3, to(3));
        scene().apply(command, outcome, events).unwrap();
        let (command, outcome, events) = end_and_grant(4, to(4));
        broken(scene().apply(command, outcome, events), "I12");
    }

    #[test]
    fn the_head_may_be_granted() {
        let mut scene = scene();
        let (command, outcome, events) = end_and_grant(2, EndCause::Released);
        scene.apply(command, outcome, events).unwrap();
    }
}
