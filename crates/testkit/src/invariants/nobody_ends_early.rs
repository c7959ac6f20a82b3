//! I7: no session runs out of time before its TTL has passed since its last sign of life, and, in
//! a new term, since the term's start if that came within the first TTL.

use ringfence_core::{Command, Event, SessionEnd};

use super::signs_of_life::SignsOfLife;
use super::{Invariant, Step};

#[derive(Default)]
pub(super) struct NobodyEndsEarly {
    signs: SignsOfLife,
}

impl Invariant for NobodyEndsEarly {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        self.signs.move_time(step);
        let now = self.signs.time;
        for event in &step.events {
            let Event::SessionEnded { session, cause } = event else {
                continue;
            };
            let Some(life) = self.signs.living.get(session) else {
                return Err(format!("{session:?} ended and was not alive"));
            };
            let deadline = life.deadline(self.signs.term_start);
            if *cause == SessionEnd::Expired && deadline > now {
                return Err(format!("{session:?} ended at {now:?}, due at {deadline:?}"));
            }
        }
        if let Command::Open(open) = step.entry.command.bare()
            && let Some(known) = self.signs.of_open(open.id)
            && let ringfence_core::Outcome::Opened(opened) = &step.outcome
            && opened.session != known
            && step.after.session(known).is_some()
        {
            return Err(format!("the same Open opened {known:?} and then another"));
        }
        self.signs.take_notice(step);
        Ok(())
    }
}
