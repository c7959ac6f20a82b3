//! I10: an ended session never comes back, and numbers are never reused.

use std::collections::BTreeSet;

use ringfence_core::{Event, Outcome, SessionId};

use super::{Invariant, Step};

#[derive(Default)]
pub(super) struct NoResurrection {
    ended: BTreeSet<SessionId>,
    newest: Option<SessionId>,
}

impl Invariant for NoResurrection {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        for event in &step.events {
            match event {
                Event::SessionOpened { session } => {
                    if Some(*session) <= self.newest {
                        return Err(format!("{session:?} opened after {:?}", self.newest));
                    }
                    self.newest = Some(*session);
                }
                Event::SessionEnded { session, .. } if !self.ended.insert(*session) => {
                    return Err(format!("{session:?} ended twice"));
                }
                Event::Granted(granted) if self.ended.contains(&granted.session) => {
                    return Err(format!("{:?} has ended", granted));
                }
                _ => {}
            }
        }
        let risen = step.after.sessions.iter().map(|session| session.id);
        let told = match &step.outcome {
            Outcome::Opened(opened) => Some(opened.session),
            _ => None,
        };
        match risen.chain(told).find(|id| self.ended.contains(id)) {
            Some(id) => Err(format!("{id:?} had ended and is alive again")),
            None => Ok(()),
        }
    }
}
