//! I2: every token is greater than all granted before, on any lease.

use ringfence_core::{Event, FencingToken};

use super::{Invariant, Step};

#[derive(Default)]
pub(super) struct TokensIncrease {
    greatest: Option<FencingToken>,
}

impl Invariant for TokensIncrease {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        for event in &step.events {
            let Event::Granted(granted) = event else {
                continue;
            };
            let token = Some(granted.token);
            if token <= self.greatest {
                return Err(format!("{:?} was granted after {:?}", token, self.greatest));
            }
            self.greatest = token;
        }
        let told = step.told_held();
        if told > self.greatest {
            return Err(format!("{told:?} was reported as granted and never was"));
        }
        Ok(())
    }
}
