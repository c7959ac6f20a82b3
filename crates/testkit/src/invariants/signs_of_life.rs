//! What entries say of the life of sessions, counted without looking at the state.

use std::collections::BTreeMap;

use ringfence_core::{ClusterTime, Command, Event, Millis, OpenId, Outcome, Rejection, SessionId};

use super::Step;

/// A living session as its entries show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) ttl: Millis,
    pub(super) seen: ClusterTime,
    open: OpenId,
}

/// The living, by what was asked and answered.
#[derive(Default)]
pub(super) struct SignsOfLife {
    pub(super) living: BTreeMap<SessionId, Life>,
    pub(super) time: ClusterTime,
    pub(super) term: u64,
    pub(super) term_start: ClusterTime,
}

impl SignsOfLife {
    /// Takes notice of time, or of a new term. To be called before the ends of an entry are judged.
    pub(super) fn move_time(&mut self, step: &Step) {
        let refused = step.outcome == Outcome::Rejected(Rejection::NotReady);
        if refused && step.before.header == step.after.header {
            return;
        }
        match step.entry.command {
            Command::TermStart { .. } if step.entry.term > self.term => {
                self.term = step.entry.term;
                self.term_start = self.time;
            }
            _ if step.entry.term != self.term => {}
            _ if refused && !step.before.is_formed() => {
                // A cluster that could not be formed: time may have begun.
                self.time = step.after.time();
            }
            _ => self.time = self.time.max(step.entry.time),
        }
    }

    /// Takes notice of what an entry did for sessions. To be called after its ends were judged.
    pub(super) fn take_notice(&mut self, step: &Step) {
        let now = self.time;
        for event in &step.events {
            if let Event::SessionEnded { session, .. } = event {
                self.living.remove(session);
            }
        }
        let mut renew = |id: &SessionId| {
            if let Some(life) = self.living.get_mut(id) {
                life.seen = life.seen.max(now);
            }
        };
        match (step.entry.command.bare(), &step.outcome) {
            // They stand for Pods of a lost cluster.
            (Command::Seed(_), Outcome::Done) => {
                let is_new = |id: &SessionId| !self.living.contains_key(id);
                let sessions = step.after.sessions.iter();
                let new: Vec<_> = sessions.filter(|session| is_new(&session.id)).collect();
                for session in new {
                    self.living.insert(
                        session.id,
                        Life {
                            ttl: Millis::FOREVER,
                            seen: now,
                            open: session.open,
                        },
                    );
                }
            }
            (Command::Open(open), Outcome::Opened(opened)) => {
                renew(&opened.session);
                self.living.entry(opened.session).or_insert(Life {
                    ttl: open.ttl,
                    seen: now,
                    open: open.id,
                });
            }
            (Command::OpenForPod(open), Outcome::Opened(opened)) => {
                renew(&opened.session);
                self.living.entry(opened.session).or_insert(Life {
                    ttl: Millis::FOREVER,
                    seen: now,
                    open: open.id,
                });
            }
            (
                Command::Request(_),
                Outcome::Rejected(
                    Rejection::NotReady
                    | Rejection::WrongSecret
                    | Rejection::SessionExpired { .. }
                    | Rejection::OtherPrincipal
                    | Rejection::Banned { .. }
                    | Rejection::TokenRevoked { .. },
                ),
            ) => {}
            (Command::Request(request), _) => renew(&request.session),
            (Command::WriteObject(write), Outcome::Object(written)) => {
                let held = step
                    .after
                    .object(&write.name)
                    .and_then(|object| object.term.as_ref());
                if let (Some(term), Some((_, ttl))) = (held, written.held) {
                    let begun = Life {
                        ttl,
                        seen: now,
                        open: step
                            .after
                            .session(term.session)
                            .map_or(OpenId::new([0; 16]), |s| s.open),
                    };
                    let term_start = self.term_start;
                    let life = self.living.entry(term.session).or_insert(begun);
                    // What was promised before stands, also if less is asked for now.
                    let promised = life.deadline(term_start);
                    life.seen = life
                        .seen
                        .max(now)
                        .max(ClusterTime(promised.0.saturating_sub(ttl.0)));
                    life.ttl = ttl;
                }
            }
            (Command::Renew(asked), Outcome::Renewed(renewed)) => {
                let alive = asked.sessions.iter();
                alive
                    .filter(|id| !renewed.ended.contains(id))
                    .for_each(renew);
            }
            _ => {}
        }
    }

    /// Which living session this `Open` made.
    pub(super) fn of_open(&self, open: OpenId) -> Option<SessionId> {
        let mut living = self.living.iter();
        let found = living.find(|(_, life)| life.open == open);
        found.map(|(id, _)| *id)
    }
}

impl Life {
    /// When it ends unless it is kept alive.
    pub(super) fn deadline(&self, term_start: ClusterTime) -> ClusterTime {
        let fresh = term_start.min(self.seen.after(self.ttl));
        self.seen.max(fresh).after(self.ttl)
    }
}
