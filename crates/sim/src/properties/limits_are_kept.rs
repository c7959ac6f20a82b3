//! I20: tables, queues and entries keep their limits: those of the replicated state, those of one
//! entry, and those that clients promise.

use ringfence_core::{Command, ENDS_PER_ENTRY_MAX, Event, GRANTS_PER_ENTRY_MAX, UNCONFIRMED_MAX};
use ringfence_testkit::view::View;

use super::Property;
use crate::observe::{Applied, At, Observation, Violation};

/// The most sessions in one keep-alive.
const SESSIONS_MAX: usize = 4_096;

#[derive(Default)]
pub(super) struct LimitsAreKept;

impl Property for LimitsAreKept {
    fn see(&mut self, _: At, seen: &Observation) -> Result<(), Violation> {
        let wrong = match seen {
            Observation::Applied(applied) if applied.first => entry(applied),
            Observation::KeepAliveAsked { sessions, .. } => within(
                "sessions of a keep-alive",
                sessions.len(),
                SESSIONS_MAX as u64,
            ),
            _ => Ok(()),
        };
        wrong.map_err(|why| Violation::of("I20", why))
    }
}

fn entry(applied: &Applied) -> Result<(), String> {
    let ends = |event: &&Event| matches!(event, Event::SessionEnded { .. });
    let grants = |event: &&Event| matches!(event, Event::Granted(_));
    let count = |which: &dyn Fn(&&Event) -> bool| applied.events.iter().filter(which).count();
    // What the entry's own command does comes on top of what was due.
    within(
        "ends of an entry",
        count(&ends),
        ENDS_PER_ENTRY_MAX as u64 + 1,
    )?;
    within(
        "grants of an entry",
        count(&grants),
        GRANTS_PER_ENTRY_MAX as u64 + 1,
    )?;
    if let Command::Request(request) = applied.entry.command.bare() {
        let ahead = request.number.get().saturating_sub(request.lowest.get());
        within("unconfirmed numbers", ahead as usize, UNCONFIRMED_MAX - 1)?;
    }
    applied.after.as_deref().map_or(Ok(()), tables)
}

fn tables(view: &View) -> Result<(), String> {
    let limits = &view.header.settings;
    within("sessions", view.sessions.len(), limits.sessions_max)?;
    within("leases", view.leases.len(), limits.leases_max)?;
    for lease in &view.leases {
        within(
            "waiters of a lease",
            lease.queue.len(),
            limits.lease_waiters_max.into(),
        )?;
    }
    for session in &view.sessions {
        let max = limits.session_leases_max.into();
        within("leases of a session", view.leases_of(session.id), max)?;
    }
    Ok(())
}

fn within(what: &str, found: usize, max: u64) -> Result<(), String> {
    if found as u64 <= max {
        return Ok(());
    }
    Err(format!("{found} {what}, at most {max} are allowed"))
}

#[cfg(test)]
mod tests {
    use ringfence_core::{Outcome, Request, Settings, StateMachine};

    use super::super::scene::{Scene, acquire, broken, number, secret, session};
    use super::*;

    #[test]
    fn too_many_unconfirmed_numbers_are_noticed() {
        let mut scene = Scene::of(LimitsAreKept);
        let ahead = |ahead| {
            Command::Request(Request {
                session: session(1),
                secret: secret(1),
                number: number(1 + ahead),
                lowest: number(1),
                ask: acquire("a"),
            })
        };
        let last = ahead(UNCONFIRMED_MAX - 1);
        scene.apply(last, Outcome::Done, Vec::new()).unwrap();
        let beyond = ahead(UNCONFIRMED_MAX);
        broken(scene.apply(beyond, Outcome::Done, Vec::new()), "I20");
    }

    #[test]
    fn a_table_beyond_its_limit_is_noticed() {
        let mut view = View::of(&StateMachine::new());
        view.header.settings = Settings {
            leases_max: 0,
            ..Settings::STANDARD
        };
        assert_eq!(tables(&view), Ok(()));
        view.leases.push(ringfence_core::snapshot::LeaseRecord {
            name: super::super::scene::name("a"),
            floor: None,
            grant: None,
            blocked: None,
            idle_since: ringfence_core::ClusterTime(0),
            armed: None,
            revoked: None,
            kept_for: None,
            kept_lost: false,
            queue: Vec::new(),
        });
        assert!(tables(&view).is_err());
    }

    #[test]
    fn a_keep_alive_of_too_many_sessions_is_noticed() {
        let asked = |count| Observation::KeepAliveAsked {
            id: 1,
            client: 1,
            sessions: vec![1; count],
        };
        let mut scene = Scene::of(LimitsAreKept);
        scene.see(asked(SESSIONS_MAX)).unwrap();
        broken(scene.see(asked(SESSIONS_MAX + 1)), "I20");
    }
}
