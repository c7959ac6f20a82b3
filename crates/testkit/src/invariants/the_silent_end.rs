//! I8: a session that gives no sign of life ends within its TTL as long as the term does not
//! change. I9: it ends within two TTLs whatever leaders do. Both in cluster time as the entries
//! show it; an entry that has reached its budget says that the rest follows at once.

use ringfence_core::Millis;

use super::signs_of_life::{Life, SignsOfLife};
use super::{Invariant, Step};

#[derive(Default)]
pub(super) struct WithinOneTtl {
    signs: SignsOfLife,
}

#[derive(Default)]
pub(super) struct WithinTwoTtls {
    signs: SignsOfLife,
}

impl Invariant for WithinOneTtl {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        self.signs.move_time(step);
        self.signs.take_notice(step);
        let term_start = self.signs.term_start;
        let same_term = |life: &Life| life.seen >= term_start;
        overdue(&self.signs, step, |life| {
            same_term(life).then(|| life.seen.after(life.ttl))
        })
    }
}

impl Invariant for WithinTwoTtls {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        self.signs.move_time(step);
        self.signs.take_notice(step);
        overdue(&self.signs, step, |life| {
            Some(life.seen.after(life.ttl).after(life.ttl))
        })
    }
}

/// Whether a session is alive although it should have ended by the time that `end` gives.
fn overdue(
    signs: &SignsOfLife,
    step: &Step,
    end: impl Fn(&Life) -> Option<ringfence_core::ClusterTime>,
) -> Result<(), String> {
    for session in &step.after.sessions {
        let Some(life) = signs.living.get(&session.id) else {
            return Err(format!("{:?} lives and was never opened", session.id));
        };
        // Who is bound to a Pod may be silent for ever.
        let limited = life.ttl != Millis::FOREVER;
        let overdue = end(life).filter(|end| limited && *end <= signs.time);
        if let Some(end) = overdue.filter(|_| !step.after.has_work_left()) {
            return Err(format!(
                "{:?} lives at {:?}, should have ended at {end:?}",
                session.id, signs.time
            ));
        }
    }
    Ok(())
}
