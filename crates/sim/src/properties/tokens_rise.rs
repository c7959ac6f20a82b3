//! I2: every token is greater than all that were granted before; and who asks behind an acknowledged
//! grant gets a greater one.

use std::collections::BTreeMap;

use ringfence_check::history::{Op, Outcome};
use ringfence_core::Event;

use super::Property;
use crate::observe::{At, Observation, Violation};

#[derive(Default)]
pub(super) struct TokensRise {
    granted: u64,
    /// The greatest token that any client received.
    acknowledged: u64,
    /// What had been acknowledged when a request was made first, by session and number.
    asked: BTreeMap<(u64, u64), u64>,
    tries: BTreeMap<u64, (u64, u64)>,
}

impl Property for TokensRise {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        match seen {
            Observation::Applied(applied) if applied.first => {
                for event in &applied.events {
                    if let Event::Granted(granted) = event {
                        self.grant(granted.token.get())?;
                    }
                }
            }
            Observation::Asked(asked) => {
                if let (Some(session), Some(request), Op::Acquire(_)) =
                    (asked.session, asked.request, &asked.op)
                {
                    let key = (session, request);
                    self.asked.entry(key).or_insert(self.acknowledged);
                    self.tries.insert(asked.id, key);
                }
            }
            Observation::Answered(answered) => {
                let key = self.tries.remove(&answered.id);
                if let Outcome::Granted { token } = answered.outcome {
                    let before = key.and_then(|key| self.asked.get(&key)).copied();
                    if before.is_some_and(|before| token <= before) {
                        let why = format!("{key:?} got {token} behind {before:?}");
                        return Err(Violation::of("I2", why));
                    }
                    self.acknowledged = self.acknowledged.max(token);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn outlives_a_restore(&self) -> bool {
        true
    }
}

impl TokensRise {
    fn grant(&mut self, token: u64) -> Result<(), Violation> {
        if token <= self.granted {
            let why = format!("{token} was granted after {}", self.granted);
            return Err(Violation::of("I2", why));
        }
        self.granted = token;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Scene, acquire_op, broken};
    use super::*;

    #[test]
    fn a_token_that_comes_twice_is_noticed() {
        let mut scene = Scene::of(TokensRise::default());
        scene.grant("a", 1, 5, 1).unwrap();
        broken(scene.grant("b", 2, 5, 1), "I2");
    }

    #[test]
    fn a_smaller_token_for_who_asked_later_is_noticed() {
        let mut scene = Scene::of(TokensRise::default());
        scene.ask(1, 1, 1, acquire_op("a")).unwrap();
        scene.answer(1, Outcome::Granted { token: 9 }).unwrap();
        scene.ask(2, 2, 1, acquire_op("b")).unwrap();
        broken(scene.answer(2, Outcome::Granted { token: 8 }), "I2");
    }

    #[test]
    fn a_try_counts_from_the_first_one() {
        let mut scene = Scene::of(TokensRise::default());
        scene.ask(1, 1, 1, acquire_op("a")).unwrap();
        scene.ask(2, 2, 1, acquire_op("b")).unwrap();
        scene.answer(2, Outcome::Granted { token: 9 }).unwrap();
        scene.ask(3, 1, 1, acquire_op("a")).unwrap();
        scene.answer(3, Outcome::Granted { token: 8 }).unwrap();
    }
}
