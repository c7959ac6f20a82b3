//! I3: at each log index a lease has at most one holder.

use ringfence_core::Event;

use super::Property;
use super::track::InForce;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct OneHolder {
    held: InForce,
}

impl Property for OneHolder {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let Observation::Applied(applied) = seen else {
            return Ok(());
        };
        if !applied.first {
            return Ok(());
        }
        for event in &applied.events {
            match event {
                Event::Granted(new) => {
                    let grant = (new.session.get(), new.token.get());
                    let held = self.held.0.insert(new.name.to_string(), grant);
                    if let Some(held) = held {
                        let why = format!("{} is held by {held:?} and {grant:?}", new.name);
                        return Err(Violation::of("I3", why));
                    }
                }
                Event::Ended {
                    name,
                    token,
                    session,
                    ..
                } => {
                    let ended = Some((session.get(), token.get()));
                    let held = self.held.0.remove(name.as_str());
                    if held != ended {
                        let why = format!("{name}: {ended:?} ended, {held:?} held it");
                        return Err(Violation::of("I3", why));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::EndCause;

    use super::super::scene::{Scene, broken, ended_event};
    use super::*;

    #[test]
    fn a_second_holder_is_noticed() {
        let mut scene = Scene::of(OneHolder::default());
        scene.grant("a", 1, 5, 1).unwrap();
        scene.release("a", 1, 5, 2).unwrap();
        scene.grant("a", 2, 6, 1).unwrap();
        broken(scene.grant("a", 3, 7, 1), "I3");
    }

    #[test]
    fn an_end_of_what_is_not_in_force_is_noticed() {
        let mut scene = Scene::of(OneHolder::default());
        scene.grant("a", 1, 5, 1).unwrap();
        broken(
            scene.tick(vec![ended_event("a", 1, 4, EndCause::Expired)]),
            "I3",
        );
    }
}
