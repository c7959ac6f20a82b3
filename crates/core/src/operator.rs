//! What operators ask, and what was seen of Pods.

use ringfence_planted::{Bug, planted};

use crate::command::{Evict, PodEnded, Revoke};
use crate::ending::EndKind;
use crate::event::{EndCause, SessionEnd};
use crate::level::LEVEL_REPEATS;
use crate::machine::StateMachine;
use crate::outcome::{LostGrant, Outcome, Rejection};

impl StateMachine {
    /// Ends one grant, named by its token, so that a repeat does not hit the next holder. A repeat
    /// of the newest revoke of a lease is done as the first was; if it says `now` and the first did
    /// not, the next grant stops waiting for the old holder.
    pub(crate) fn revoke(&mut self, revoke: &Revoke) -> Result<Outcome, Rejection> {
        let (name, offered) = (&revoke.name, revoke.token);
        let current = self.grant_of(name).map(|grant| grant.token);
        if current != Some(offered) {
            let lease = self.leases.get(name);
            if lease.is_some_and(|lease| lease.revoked == Some(offered)) {
                let lifts = revoke.now && self.stop_waiting_for(name, offered);
                self.changed_nothing = !lifts;
                return Ok(Outcome::Done);
            }
            if !(planted(Bug::RevokeByName) && current.is_some()) {
                let refusal = Rejection::StaleToken {
                    name: name.clone(),
                    offered,
                    current,
                };
                // No revoke is remembered, so what its answer hides changes no state.
                let caller = self.caller.as_ref().map(|caller| &caller.principal);
                return Err(match planted(Bug::RevokeShowsHidden) {
                    true => refusal,
                    false => self.without_hidden(caller, refusal),
                });
            }
        }
        self.revoke_grant(revoke);
        Ok(Outcome::Done)
    }

    /// The session lives on and learns of its loss with its keep-alives. Until it has acknowledged
    /// it, or one TTL has passed, it may believe that it holds the lease.
    fn revoke_grant(&mut self, revoke: &Revoke) {
        let Some(grant) = self.grant_of(&revoke.name) else {
            return;
        };
        let (id, token) = (grant.session, grant.token);
        let operator = self.operator(&revoke.operator);
        let cause = EndCause::Revoked {
            operator,
            reason: revoke.reason.clone(),
        };
        let lost = LostGrant {
            name: revoke.name.clone(),
            token,
            cause: cause.clone(),
        };
        let now = self.time();
        let until = self.change_session(id, |session| {
            session.add_lost(lost);
            session.believes_until(now)
        });
        let Some(until) = until else {
            return;
        };
        let kind = match revoke.now || planted(Bug::RevokeGrantsAtOnce) {
            true => EndKind::Abrupt,
            false => EndKind::MayStillBelieve(until),
        };
        self.end_grant(&revoke.name, &cause, kind);
    }

    pub(crate) fn evict(&mut self, evict: &Evict) -> Result<Outcome, Rejection> {
        if self.is_at(LEVEL_REPEATS) && !self.has_opened(evict.session) {
            return Err(Rejection::SessionExpired { cause: None });
        }
        if self.sessions.get(&evict.session).is_none() {
            let cause = self.session_end(evict.session);
            self.changed_nothing = true;
            return Ok(Outcome::Closed { cause });
        }
        let cause = SessionEnd::Evicted {
            operator: self.operator(&evict.operator),
            reason: evict.reason.clone(),
        };
        self.end_session(evict.session, &cause);
        Ok(Outcome::Closed { cause: Some(cause) })
    }

    /// Ends the sessions of a Pod, as far as the budget goes. What has seen the Pod's end says so
    /// again as long as there are any.
    pub(crate) fn pod_ended(&mut self, ended: &PodEnded) -> Outcome {
        let cause = SessionEnd::PodEnded {
            uid: ended.uid.clone(),
            seen: ended.seen,
        };
        while self.budget.look()
            && let Some(id) = self.bound_to(&ended.uid)
        {
            self.end_session_within_budget(id, &cause);
        }
        Outcome::Done
    }
}
