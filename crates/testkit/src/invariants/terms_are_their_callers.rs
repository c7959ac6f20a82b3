//! E2: only the process that holds a term of a Lease object renews and releases it by writes of the
//! object; another one ends it by a revoke alone.

use ringfence_core::{Candidate, Command, EndCause, Event, Mode, ObjectWrite, Outcome};
use ringfence_model::rights::Rights;

use super::no_second_term::writer;
use super::{Invariant, Step};

pub(super) struct TermsAreTheirCallers;

impl Invariant for TermsAreTheirCallers {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        let (Command::WriteObject(write), Some(by)) = (step.entry.command.bare(), writer(step))
        else {
            return Ok(());
        };
        let Some(term) = step
            .before
            .object(&write.name)
            .and_then(|o| o.term.as_ref())
        else {
            return Ok(());
        };
        let binds = Rights::of(&step.before.access).mode == Mode::Enforced;
        let holder = &term.candidate;
        let own = holder.pod == by.pod && (!binds || holder.principal == by.principal);
        let ended = step.events.iter().find_map(|event| match event {
            Event::Ended { token, cause, .. } if *token == term.token => Some(cause),
            _ => None,
        });
        let may_end = match ended {
            None | Some(EndCause::Expired) => true,
            Some(EndCause::Revoked { .. }) => {
                matches!(write.write, ObjectWrite::Delete { revoke: Some(_) })
            }
            Some(EndCause::Released) => own && by.pod.is_some(),
            Some(_) => false,
        };
        if !may_end {
            return Err(format!("{by:?} ended the term of {holder:?}: {ended:?}"));
        }
        let claims = *holder == Candidate::default();
        let seen = |view: &crate::view::View| {
            let session = view.session(term.session)?;
            Some((session.seen, session.ttl))
        };
        let lives = seen(&step.after);
        if lives.is_some() && seen(&step.before) != lives && !own && !claims {
            return Err(format!("{by:?} renewed the term of {holder:?}"));
        }
        let told = match &step.outcome {
            Outcome::Object(written) => written.held.map(|(token, _)| token),
            _ => None,
        };
        if told == Some(term.token) && !own && !claims {
            return Err(format!(
                "{by:?} was shown the term of {holder:?} as its own"
            ));
        }
        Ok(())
    }
}
