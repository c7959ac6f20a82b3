//! Keep-alives, what operators ask, and what was seen of Pods.

use ringfence_planted::{Bug, planted};

use crate::budget::Budget;
use crate::command::{Configure, Evict, PodEnded, Renew, Revoke};
use crate::event::{EndCause, Event, SessionEnd};
use crate::level::LEVEL_REPEATS;
use crate::machine::StateMachine;
use crate::outcome::{Outcome, Rejection, Renewed};
use alloc::vec::Vec;

impl StateMachine {
    /// Moves the sessions' last sign of life to now. A session that is due is not renewed, even if
    /// the entry's budget did not reach its end: it ends with one of the next entries, unless the
    /// first of those opens a term and gives it a fresh TTL. So of a session that is listed as
    /// ended and still there, no client may learn that it has ended.
    pub(crate) fn renew(&mut self, renew: &Renew) -> Outcome {
        let (now, term_start) = (self.time, self.term_start);
        for (id, token) in &renew.acknowledged {
            let Some(session) = self.sessions.get_mut(*id) else {
                continue;
            };
            if let Some(known) = session.remove_lost(*token) {
                self.stop_waiting_for(&known.name, known.token);
            }
        }
        let mut renewed = Renewed {
            time: now,
            ..Renewed::default()
        };
        let Renewed { ended, lost, .. } = &mut renewed;
        self.sessions
            .visit(&renew.sessions, |id, session| match session {
                Some(session) if session.lives(term_start, now) || planted(Bug::LateRenewFirst) => {
                    session.seen = now;
                    if !session.lost().is_empty() && !planted(Bug::LossNotTold) {
                        lost.push((id, session.lost().to_vec()));
                    }
                }
                _ => ended.push(id),
            });
        Outcome::Renewed(renewed)
    }

    pub(crate) fn configure(&mut self, configure: &Configure) -> Outcome {
        if configure.based_on != self.settings_set_at {
            return Outcome::Rejected(Rejection::StaleSettings {
                set_at: self.settings_set_at,
            });
        }
        if let Err(invalid) = configure.settings.check() {
            return Outcome::Rejected(Rejection::InvalidSetting(invalid));
        }
        self.settings = configure.settings;
        self.settings_set_at = self.index;
        Outcome::Done
    }

    /// Ends one grant, named by its token, so that a repeat does not hit the next holder. A repeat
    /// of the newest revoke of a lease is done as the first was; if it says `now` and the first did
    /// not, the next grant stops waiting for the old holder.
    pub(crate) fn revoke(&mut self, revoke: &Revoke, events: &mut Vec<Event>) -> Outcome {
        let Revoke {
            name,
            token,
            now,
            reason,
            operator,
        } = revoke;
        let grant = self
            .leases
            .get(name)
            .and_then(|lease| lease.grant.as_deref());
        let current = grant.map(|grant| grant.token);
        let lease = self.leases.get(name);
        if current != Some(*token) && lease.is_some_and(|lease| lease.revoked == Some(*token)) {
            if *now {
                self.stop_waiting_for(name, *token);
            }
            return Outcome::Done;
        }
        let by_name = planted(Bug::RevokeByName) && current.is_some();
        if current != Some(*token) && !by_name {
            let (name, offered) = (name.clone(), *token);
            return Outcome::Rejected(Rejection::StaleToken {
                name,
                offered,
                current,
            });
        }
        let (operator, reason) = (operator.clone(), reason.clone());
        let cause = EndCause::Revoked { operator, reason };
        self.revoke_grant(name, &cause, *now, events);
        Outcome::Done
    }

    pub(crate) fn evict(&mut self, evict: &Evict, events: &mut Vec<Event>) -> Outcome {
        let Evict {
            session,
            reason,
            operator,
        } = evict;
        if self.is_at(LEVEL_REPEATS) && !self.has_opened(*session) {
            return Outcome::Rejected(Rejection::SessionExpired { cause: None });
        }
        if self.sessions.get(*session).is_none() {
            let cause = self.session_end(*session);
            return Outcome::Closed { cause };
        }
        let (operator, reason) = (operator.clone(), reason.clone());
        let cause = SessionEnd::Evicted { operator, reason };
        self.end_session(*session, &cause, events);
        Outcome::Closed { cause: Some(cause) }
    }

    /// Ends the sessions of a Pod, as far as the budget goes. An observer that has seen the Pod's
    /// end says so again as long as there are any.
    pub(crate) fn pod_ended(
        &mut self,
        ended: &PodEnded,
        budget: &mut Budget,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let (uid, seen) = (ended.uid.clone(), ended.seen);
        let cause = SessionEnd::PodEnded { uid, seen };
        while budget.look() {
            let Some(id) = self.bound_to(&ended.uid) else {
                break;
            };
            let endings = self.end_session(id, &cause, events);
            budget.session_ended(endings);
        }
        Outcome::Done
    }
}
