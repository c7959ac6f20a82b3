//! I21: a request number is remembered until its client has confirmed the answer and it neither
//! waits nor holds any more, so a request takes effect once; the id of an `Open` is remembered until a minute after its session's end.

use ringfence_core::snapshot::SessionRecord;
use ringfence_core::{Command, Event, OPEN_AGE_MAX, RequestNumber, SessionId};

use super::{Invariant, Step};
use crate::view::View;

pub(super) struct Remembered;

impl Invariant for Remembered {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        for before in &step.before.sessions {
            let Some(after) = step.after.session(before.id) else {
                id_is_kept(step, before.id)?;
                continue;
            };
            if after.lowest < before.lowest || after.lowest > confirmed(step, before) {
                let (from, to) = (before.lowest, after.lowest);
                return Err(format!("{:?} confirmed {from:?} to {to:?}", before.id));
            }
            for answer in &before.answers {
                let needed = answer.number >= after.lowest
                    || bears_on_something(&step.after, before.id, answer.number);
                if needed && !after.answers.iter().any(|a| a.number == answer.number) {
                    return Err(format!("{:?} forgot {answer:?}", before.id));
                }
            }
        }
        for ended in &step.before.ended {
            if ended.at.after(OPEN_AGE_MAX) > step.after.time() {
                id_is_kept(step, ended.session)?;
            }
        }
        no_second_effect(step)
    }
}

/// Whether a request holds a lease or waits for one: a confirmed number is forgotten only after that.
fn bears_on_something(view: &View, session: SessionId, number: RequestNumber) -> bool {
    view.leases.iter().any(|lease| {
        let holds = lease.grant.as_ref();
        let holds = holds.is_some_and(|grant| (grant.session, grant.request) == (session, number));
        let mut queue = lease.queue.iter();
        holds || queue.any(|waiter| (waiter.session, waiter.request) == (session, number))
    })
}

/// The lowest number that the session may have after this entry.
fn confirmed(step: &Step, session: &SessionRecord) -> RequestNumber {
    match step.entry.command.bare() {
        Command::Request(request)
            if request.session == session.id && request.secret == session.secret =>
        {
            session.lowest.max(request.lowest)
        }
        // It numbers the requests of the sessions that stand for Pods: no client knows them.
        Command::Seed(_) => step
            .after
            .session(session.id)
            .map_or(session.lowest, |it| it.lowest),
        _ => session.lowest,
    }
}

fn id_is_kept(step: &Step, id: SessionId) -> Result<(), String> {
    let kept = step.after.ended.iter().any(|ended| ended.session == id);
    // What ends at the end of time is forgotten at once.
    if kept || step.after.time().after(OPEN_AGE_MAX) <= step.after.time() {
        return Ok(());
    }
    Err(format!("the ended {id:?} was forgotten too early"))
}

/// A number that was answered before is granted only from the queue.
fn no_second_effect(step: &Step) -> Result<(), String> {
    for event in &step.events {
        let Event::Granted(granted) = event else {
            continue;
        };
        let session = step.before.session(granted.session);
        let answers = session.map_or(&[][..], |session| &session.answers);
        let answered = answers.iter().any(|a| a.number == granted.request);
        let lease = step.before.lease(&granted.name);
        let waited = lease.is_some_and(|lease| {
            let mut queue = lease.queue.iter();
            queue.any(|w| (w.session, w.request) == (granted.session, granted.request))
        });
        if answered && !waited {
            return Err(format!("answered before, and now {granted:?}"));
        }
    }
    Ok(())
}
