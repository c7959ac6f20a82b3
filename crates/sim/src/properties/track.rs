//! What several promises need to remember of the log.

use std::collections::BTreeMap;

use ringfence_core::{Command, Entry, Event, LeaseName, Outcome, Rejection};

use crate::observe::Applied;

/// A living session as the log shows it; times are cluster times in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) ttl: u64,
    /// Its last sign of life.
    pub(super) seen: u64,
    /// The term in which that was logged.
    pub(super) term: u64,
}

/// The sessions that live, counted from what was asked and answered.
#[derive(Default)]
pub(super) struct Lives {
    pub(super) living: BTreeMap<u64, Life>,
    /// The sessions of the newest terms of Lease objects.
    terms: BTreeMap<LeaseName, u64>,
    pub(super) time: u64,
    term: u64,
    term_start: u64,
}

impl Lives {
    /// Moves time. To be called before the ends of an entry are judged.
    pub(super) fn move_time(&mut self, entry: &Entry, outcome: &Outcome) {
        if matches!(entry.command, Command::TermStart { .. }) && entry.term > self.term {
            self.term = entry.term;
            self.term_start = self.time;
        } else if *outcome != Outcome::Rejected(Rejection::NotReady) {
            self.time = self.time.max(entry.time.0);
        }
    }

    /// When a session ends unless it is kept alive.
    pub(super) fn deadline(&self, life: &Life) -> u64 {
        let fresh = self.term_start.min(life.seen + life.ttl);
        life.seen.max(fresh) + life.ttl
    }

    /// Notes signs of life and ends. To be called when the ends of the entry were judged.
    pub(super) fn take(&mut self, entry: &Entry, outcome: &Outcome, events: &[Event]) {
        for event in events {
            if let Event::SessionEnded { session, .. } = event {
                self.living.remove(&session.get());
            }
        }
        match (entry.command.bare(), outcome) {
            (Command::Open(open), Outcome::Opened(opened)) => {
                let life = Life {
                    ttl: open.ttl.0,
                    seen: self.time,
                    term: self.term,
                };
                let session = opened.session.get();
                if opened.repeated {
                    self.sign(session);
                } else {
                    self.living.insert(session, life);
                }
            }
            // A term of a Lease object is a session of its own.
            (Command::WriteObject(_), Outcome::Object(written)) => {
                let holder = written.held.and_then(|(token, ttl)| {
                    let session = self.terms.get(&written.object.name).copied();
                    let begun = events.iter().find_map(|event| match event {
                        Event::Granted(granted) if granted.token == token => {
                            Some(granted.session.get())
                        }
                        _ => None,
                    });
                    Some((begun.or(session)?, ttl))
                });
                if let Some((session, ttl)) = holder {
                    self.terms.insert(written.object.name.clone(), session);
                    let life = Life {
                        ttl: ttl.0,
                        seen: self.time,
                        term: self.term,
                    };
                    self.living.insert(session, life);
                }
            }
            (Command::Request(request), outcome) if is_sign_of_life(outcome) => {
                self.sign(request.session.get());
            }
            (Command::Renew(renew), Outcome::Renewed(renewed)) => {
                let alive = renew.sessions.iter();
                for session in alive.filter(|session| !renewed.ended.contains(session)) {
                    self.sign(session.get());
                }
            }
            _ => {}
        }
    }

    fn sign(&mut self, session: u64) {
        if let Some(life) = self.living.get_mut(&session) {
            life.seen = self.time;
            life.term = self.term;
        }
    }
}

/// Whether the answer to a session's request shows that it was taken for the session's.
fn is_sign_of_life(outcome: &Outcome) -> bool {
    !matches!(
        outcome,
        Outcome::Rejected(
            Rejection::NotReady
                | Rejection::WrongSecret
                | Rejection::SessionExpired { .. }
                | Rejection::OtherPrincipal
                | Rejection::Banned { .. }
                | Rejection::TokenRevoked { .. }
        )
    )
}

/// The grants in force, by lease: session and token.
#[derive(Default)]
pub(super) struct InForce(pub(super) BTreeMap<String, (u64, u64)>);

impl InForce {
    /// Takes what an entry changed.
    pub(super) fn take(&mut self, applied: &Applied) {
        for event in &applied.events {
            match event {
                Event::Granted(granted) => {
                    let grant = (granted.session.get(), granted.token.get());
                    self.0.insert(granted.name.to_string(), grant);
                }
                Event::Ended { name, token, .. } => {
                    let held = self.0.get(name.as_str());
                    if held.is_some_and(|(_, held)| *held == token.get()) {
                        self.0.remove(name.as_str());
                    }
                }
                _ => {}
            }
        }
    }

    /// The session and the token of the grant in force.
    pub(super) fn of(&self, lease: &str) -> Option<(u64, u64)> {
        self.0.get(lease).copied()
    }
}
