//! I20: no table grows beyond its limit, nor what one principal has of it. A limit that was lowered below what is there lets nothing
//! more in.

use ringfence_core::snapshot::{Answer, SessionRecord};
use ringfence_core::{LEVEL_RESTORE, Mode, UNCONFIRMED_MAX};

use super::{Invariant, Step};
use crate::view::View;

pub(super) struct LimitsAreKept;

impl Invariant for LimitsAreKept {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        let (before, after) = (&step.before, &step.after);
        let limits = &after.header.settings;
        let sessions = after.sessions.len() + after.ended.len();
        let sessions_before = before.sessions.len() + before.ended.len();
        grown(
            "sessions",
            || sessions_before,
            sessions,
            limits.sessions_max,
        )?;
        let (leases_before, leases) = (before.leases.len(), after.leases.len());
        grown("leases", || leases_before, leases, limits.leases_max)?;
        for session in &after.sessions {
            let id = session.id;
            let leases = after.leases_of(id);
            let max = limits.session_leases_max.into();
            grown("leases of a session", || before.leases_of(id), leases, max)?;
            for answer in &session.answers {
                let window = answer.number.get().checked_sub(session.lowest.get());
                let alive = matches!(
                    answer.answer,
                    Answer::Waiting { .. } | Answer::Granted { .. }
                );
                if window.map_or(!alive, |ahead| ahead >= UNCONFIRMED_MAX) {
                    return Err(format!("{id:?} remembers {answer:?}"));
                }
            }
        }
        for lease in &after.leases {
            let old = || before.lease(&lease.name).map_or(0, |old| old.queue.len());
            let max = limits.lease_waiters_max.into();
            grown("waiters of a lease", old, lease.queue.len(), max)?;
        }
        principals(before, after)
    }
}

/// Names that no session uses any more count for the principal that used them last, and lose it when
/// they are used by another one. A session that becomes a principal's brings along what it has.
///
/// # Errors
/// The principal that has more than it may have, and more than before.
fn principals(before: &View, after: &View) -> Result<(), String> {
    let (mode, limits) = after.principal_limits();
    if mode != Mode::Enforced || after.header.level < LEVEL_RESTORE {
        return Ok(());
    }
    for principal in &after.principals() {
        let adopted = |session: &&SessionRecord| {
            let old = before.session(session.id);
            old.is_some_and(|old| old.owner.is_none()) && session.owner.as_ref() == Some(principal)
        };
        if after.sessions.iter().any(|session| adopted(&session)) {
            continue;
        }
        let (old, new) = (|| before.names_of(principal), after.names_of(principal));
        grown("names of a principal", old, new, limits.leases)?;
    }
    Ok(())
}

/// Looks at what there was before only where there is too much now.
fn grown(what: &str, before: impl FnOnce() -> usize, after: usize, max: u64) -> Result<(), String> {
    if after as u64 > max && after > before() {
        return Err(format!("{after} {what}, at most {max} are allowed"));
    }
    Ok(())
}
