//! E1: a candidate that lost a term of a Lease object against its will is granted no other one before
//! it had time to notice: its next try is refused, and so are all others for one duration more. A
//! client of Kubernetes' election that sleeps, for however long, wakes into its old term, and ends it
//! within its renew deadline, which is shorter than the duration.

use std::collections::BTreeMap;

use ringfence_core::{
    Candidate, ClusterTime, Command, EndCause, Event, Identity, LeaseName, Millis, Mode,
    ObjectWrite, Outcome,
};
use ringfence_model::rights::Rights;

use super::{Invariant, Step};

#[derive(Default)]
pub(super) struct NoSecondTerm {
    lost: BTreeMap<(LeaseName, String, Candidate), Tries>,
}

/// What a candidate tried since its loss.
#[derive(Clone, Copy, Default)]
struct Tries {
    first: Option<ClusterTime>,
    /// The shortest duration that it asked for.
    duration: Millis,
}

/// Who writes an object with this entry, by what is proven.
pub(super) fn writer(step: &Step) -> Option<Candidate> {
    let Command::WriteObject(write) = step.entry.command.bare() else {
        return None;
    };
    let principal = match &step.entry.command {
        Command::Called(called) => Some(called.caller.principal.clone()),
        _ => None,
    };
    Some(Candidate {
        principal: principal.filter(|principal| principal.as_str() != "anonymous"),
        pod: write.pod.clone(),
    })
}

impl Invariant for NoSecondTerm {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        let judged = self.judge(step);
        for event in &step.events {
            let Event::Ended {
                name,
                identity,
                cause,
                ..
            } = event
            else {
                continue;
            };
            let knows = matches!(
                cause,
                EndCause::Released | EndCause::Closed | EndCause::Transferred { .. }
            );
            let object = step.before.object(name);
            if let Some(term) = object
                .and_then(|object| object.term.as_ref())
                .filter(|_| !knows)
            {
                let who = key(name, identity, &term.candidate);
                self.lost.insert(who, Tries::default());
            }
        }
        judged
    }
}

impl NoSecondTerm {
    fn judge(&mut self, step: &Step) -> Result<(), String> {
        let (Command::WriteObject(write), Some(by)) = (step.entry.command.bare(), writer(step))
        else {
            return Ok(());
        };
        let ObjectWrite::Put {
            spec: Some(spec), ..
        } = &write.write
        else {
            return Ok(());
        };
        let who = key(&write.name, &spec.holder, &by);
        let binds = Rights::of(&step.before.access).mode == Mode::Enforced;
        // What looks like another process of the same name may be this one: nothing is said of it.
        self.lost.retain(|(name, identity, of), _| {
            let alike = of.pod == by.pod && !binds || *of == Candidate::default();
            let same_name = (name, identity) == (&who.0, &who.1);
            !same_name || *of == by || !alike
        });
        let Some(tries) = self.lost.get_mut(&who) else {
            return Ok(());
        };
        let duration = Millis::from_secs(spec.seconds.into());
        let now = step.after.time();
        let is_held = match &step.outcome {
            Outcome::Object(written) => written.held.is_some(),
            _ => false,
        };
        match tries.first {
            None if is_held => Err(format!("{by:?} lost its term, and its next try is granted")),
            None => {
                *tries = Tries {
                    first: Some(now),
                    duration,
                };
                Ok(())
            }
            Some(first) if is_held => {
                let (since, least) = (now.since(first), tries.duration.min(duration));
                self.lost.remove(&who);
                // At the end of cluster time no moment lies behind the duration.
                match now >= first.after(least) {
                    true => Ok(()),
                    false => Err(format!(
                        "{by:?} lost its term, and is granted another one {since} after its next \
                         try; its lease lasts {least}"
                    )),
                }
            }
            Some(_) => {
                tries.duration = tries.duration.min(duration);
                Ok(())
            }
        }
    }
}

fn key(
    name: &LeaseName,
    identity: &Identity,
    candidate: &Candidate,
) -> (LeaseName, String, Candidate) {
    (
        name.clone(),
        identity.as_str().to_owned(),
        candidate.clone(),
    )
}
