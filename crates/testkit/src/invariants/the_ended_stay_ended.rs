//! I24: a grant that was reported as ended is never reported as held again.

use std::collections::BTreeSet;

use ringfence_core::{Acquired, Event, FencingToken, Outcome};

use super::{Invariant, Step};

#[derive(Default)]
pub(super) struct EndedStayEnded {
    ended: BTreeSet<FencingToken>,
}

impl Invariant for EndedStayEnded {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        for event in &step.events {
            match event {
                Event::Ended { token, .. } => drop(self.ended.insert(*token)),
                Event::Granted(granted) if self.ended.contains(&granted.token) => {
                    return Err(format!("ended before, and now {granted:?}"));
                }
                _ => {}
            }
        }
        match &step.outcome {
            Outcome::Renewed(renewed) => {
                let lost = renewed.lost.iter().flat_map(|(_, lost)| lost);
                self.ended.extend(lost.map(|lost| lost.token));
            }
            Outcome::Acquired(Acquired::Ended { token, .. }) | Outcome::Released { token } => {
                self.ended.insert(*token);
            }
            _ => {}
        }
        let grants = step.after.leases.iter();
        let held = grants.filter_map(|lease| lease.grant.as_ref().map(|grant| grant.token));
        match held
            .chain(step.told_held())
            .find(|t| self.ended.contains(t))
        {
            Some(token) => Err(format!("{token:?} had ended and is held")),
            None => Ok(()),
        }
    }
}
