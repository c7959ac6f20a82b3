//! I10: an ended session never comes back, and numbers are never reused.

use std::collections::BTreeSet;

use ringfence_core::{Command, Event, Outcome, Rejection, SessionId};

use ringfence_model::rights::Rights;

use super::{Invariant, Step};

#[derive(Default)]
pub(super) struct NoResurrection {
    ended: BTreeSet<SessionId>,
    newest: Option<SessionId>,
    /// Those of which an answer said that they have ended.
    told: BTreeSet<SessionId>,
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
        self.take_answer(step);
        let risen = step.after.sessions.iter().map(|session| session.id);
        let opened = match &step.outcome {
            Outcome::Opened(opened) => Some(opened.session),
            _ => None,
        };
        let over = |id: &SessionId| self.ended.contains(id) || self.told.contains(id);
        match risen.chain(opened).find(over) {
            Some(id) => Err(format!("{id:?} had ended and is alive again")),
            None => Ok(()),
        }
    }
}

impl NoResurrection {
    /// Takes notice of the ends that an answer tells.
    fn take_answer(&mut self, step: &Step) {
        let told = match (step.entry.command.bare(), &step.outcome) {
            (_, Outcome::Renewed(renewed)) => renewed.ended.as_slice(),
            (Command::Request(request), Outcome::Rejected(Rejection::SessionExpired { .. })) => {
                std::slice::from_ref(&request.session)
            }
            (Command::Close { session, .. }, Outcome::Closed { .. }) => {
                std::slice::from_ref(session)
            }
            _ => &[],
        };
        let rights = Rights::of(&step.after.access);
        for id in told {
            // Who asks for a number that is yet to be given away does not learn of an end.
            if id.get() >= step.after.header.next_session {
                continue;
            }
            // One that is due and that the entry's budget did not reach is listed by a keep-alive
            // too, and so is one of a banned principal. The code that answers it leaves both out.
            let lives = step.after.session(*id).is_some_and(|session| {
                let owner = session.owner.as_ref();
                step.after.has_work_left() || (owner.is_some() && rights.ban(owner))
            });
            if !(lives && matches!(step.outcome, Outcome::Renewed(_))) {
                self.told.insert(*id);
            }
        }
    }
}
