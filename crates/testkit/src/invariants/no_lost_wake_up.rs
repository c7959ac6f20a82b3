//! I13: no wake-up is lost, since whatever waits for time is announced in the next deadline and
//! whatever could be granted is; no grant is without a living session, and no session waits as a
//! ghost.

use ringfence_core::snapshot::{Answer, LeaseRecord};
use ringfence_core::{ClusterTime, LEVEL_REPEATS};

use super::{Invariant, Step};
use crate::view::View;

pub(super) struct NoLostWakeUp;

impl Invariant for NoLostWakeUp {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        for lease in &step.after.leases {
            no_orphan(lease, &step.after)?;
            no_ghost(lease, &step.after)?;
            let Some(wake_up) = wake_up(lease, &step.after) else {
                continue;
            };
            if step.after.next_deadline.is_none_or(|next| next > wake_up) {
                return Err(format!(
                    "{} wants to be woken at {wake_up:?}, the next deadline is {:?}",
                    lease.name, step.after.next_deadline
                ));
            }
        }
        Ok(())
    }
}

/// When something is to happen to this lease at the latest; the present means at once. A name that
/// no session uses is to be forgotten, by the retention that is set now; below the level with which
/// that begins it is to be looked at, sooner or later.
fn wake_up(lease: &LeaseRecord, view: &View) -> Option<ClusterTime> {
    let timeouts = lease.queue.iter().map(|waiter| waiter.until).min();
    if lease.grant.is_some() {
        return timeouts;
    }
    let blocked = lease.blocked.as_ref().map(|block| {
        let unaware = block.revoked.map(|holder| holder.until);
        block.lock_delay_until.max(unaware.unwrap_or_default())
    });
    if lease.queue.is_empty() && view.header.level < LEVEL_REPEATS {
        return Some(lease.armed.unwrap_or_default());
    }
    if lease.queue.is_empty() {
        let retention = view.header.settings.idle_retention;
        return blocked.or(Some(lease.idle_since.after(retention)));
    }
    let grantable = blocked.unwrap_or_default().max(view.header.quiet_until);
    timeouts.min(Some(grantable.max(view.time())))
}

fn no_orphan(lease: &LeaseRecord, view: &View) -> Result<(), String> {
    let Some(grant) = &lease.grant else {
        return Ok(());
    };
    let Some(session) = view.session(grant.session) else {
        return Err(format!("{} is held by the dead {grant:?}", lease.name));
    };
    let answer = session.answers.iter().find(|a| a.number == grant.request);
    let told = answer.is_none_or(
        |answer| matches!(&answer.answer, Answer::Granted { token, .. } if *token == grant.token),
    );
    if !told {
        return Err(format!("{grant:?} is reported as {answer:?}"));
    }
    Ok(())
}

fn no_ghost(lease: &LeaseRecord, view: &View) -> Result<(), String> {
    for waiter in &lease.queue {
        let Some(session) = view.session(waiter.session) else {
            return Err(format!("the dead wait for {}: {waiter:?}", lease.name));
        };
        let answer = session.answers.iter().find(|a| a.number == waiter.request);
        let told = answer.is_some_and(
            |answer| matches!(&answer.answer, Answer::Waiting { name } if *name == lease.name),
        );
        if !told {
            return Err(format!("{waiter:?} is reported as {answer:?}"));
        }
        if waiter.until < view.time() && !view.has_work_left() {
            return Err(format!("{waiter:?} waits for too long"));
        }
    }
    Ok(())
}
