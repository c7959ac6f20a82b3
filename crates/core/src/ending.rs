//! Ends: of sessions, of grants and of waits.

use alloc::boxed::Box;

use ringfence_planted::{Bug, planted};

use crate::access::usage::less;
use crate::answer::Answer;
use crate::deadlines::Due;
use crate::ended::EndedRecord;
use crate::event::{EndCause, Event, SessionEnd, WaitEnd};
use crate::id::{FencingToken, SessionId};
use crate::lease::{Block, RevokedHolder};
use crate::level::{LEVEL_REPEATS, LEVEL_RESTORE};
use crate::machine::StateMachine;
use crate::name::{Identity, LeaseName};
use crate::session::Session;
use crate::settings::OPEN_AGE_MAX;
use crate::time::{ClusterTime, Millis};

/// How the end of a grant bears on the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndKind {
    /// The holder has stopped: the next one may follow at once.
    Graceful,
    /// The holder did not say so: its lock-delay runs.
    Abrupt,
    /// As abrupt, and the holder may still believe that it holds the lease until this time.
    MayStillBelieve(ClusterTime),
}

impl StateMachine {
    /// Ends everything whose time has come, in the order (deadline, number), as far as the budget
    /// goes.
    pub(crate) fn settle_due(&mut self) {
        let now = self.time();
        let repeats = self.is_at(LEVEL_REPEATS) || planted(Bug::NewOrderBelowItsLevel);
        while self.budget.look() {
            let looks = (!repeats).then_some(&mut self.state.looks);
            match self.deadlines.pop(now, looks) {
                Some(Due::Session(id)) => self.session_due(id),
                Some(Due::Wait { place, name }) => {
                    self.budget.wait_ended();
                    self.wait_due(place, &name);
                }
                Some(Due::Block(name)) => self.lift_block(&name),
                Some(Due::Look(at, name)) => self.look_at(at, &name),
                None => break,
            }
        }
        // Last and with a budget of their own: no client waits for a name to be forgotten.
        while repeats && self.budget.forget() {
            let retention = self.settings().idle_retention;
            let Some(name) = self.deadlines.pop_idle(now, retention) else {
                break;
            };
            self.forget(&name);
        }
        let is_over = |at: ClusterTime| at.after(OPEN_AGE_MAX) <= now;
        while self.ended.oldest().is_some_and(is_over) && self.budget.look() {
            if let Some(ended) = self.state.ended.pop() {
                self.opens.remove(&ended.open);
                let owner = ended.owner.as_ref();
                self.usages
                    .change(owner, |counts| less(&mut counts.sessions, 1));
            }
        }
    }

    fn session_due(&mut self, id: SessionId) {
        // A session that ends takes its deadline along, so one that comes due is alive.
        let Some(session) = self.state.sessions.get_mut(&id) else {
            return;
        };
        let deadline = session.deadline(self.state.header.term_start);
        if deadline > session.armed {
            // It was renewed since. Back to its true place; if that has come too, it is looked at
            // again in its turn.
            session.armed = deadline;
            self.deadlines.insert_session(deadline, id);
            return;
        }
        self.end_session_within_budget(id, &SessionEnd::Expired);
    }

    fn wait_due(&mut self, place: u64, name: &LeaseName) {
        let now = self.time();
        let left = self.change_lease(name, |lease| lease.leave(place, now));
        let Some(waiter) = left.flatten() else {
            return;
        };
        self.state.waiters -= 1;
        // The deadline itself is gone: it was taken from the set when it came due.
        self.change_session(waiter.session, |session| {
            session.remove_wait(waiter.request);
            let answer = Answer::TimedOut { name: name.clone() };
            session.requests.settle(waiter.request, answer);
        });
        self.events.push(Event::WaitEnded {
            name: name.clone(),
            session: waiter.session,
            request: waiter.request,
            why: WaitEnd::TimedOut,
        });
    }

    /// Takes a place out of its queue before its wait is over. The session's own side is the
    /// caller's part.
    pub(crate) fn remove_waiter(&mut self, name: &LeaseName, place: u64, why: WaitEnd) {
        let now = self.time();
        let left = self.change_lease(name, |lease| lease.leave(place, now));
        let Some(waiter) = left.flatten() else {
            return;
        };
        self.state.waiters -= 1;
        self.deadlines
            .remove_wait(waiter.until, place, name.clone());
        self.events.push(Event::WaitEnded {
            name: name.clone(),
            session: waiter.session,
            request: waiter.request,
            why,
        });
    }

    /// Counts against the budget what ends with the session.
    pub(crate) fn end_session_within_budget(&mut self, id: SessionId, cause: &SessionEnd) {
        let with_losses = self.is_at(LEVEL_RESTORE);
        let endings = self.sessions.get(&id).map_or(0, |session| {
            let losses = if with_losses { session.lost().len() } else { 0 };
            session.holds().len() + session.waits().len() + losses
        });
        self.end_session(id, cause);
        self.budget.session_ended(endings);
    }

    /// Ends a session with all it holds and waits for.
    pub(crate) fn end_session(&mut self, id: SessionId, cause: &SessionEnd) {
        // Out of the table first: nothing that ends below can be granted to it again.
        let Some(session) = self.state.sessions.remove(&id) else {
            return;
        };
        self.deadlines.remove_session(session.armed, id);
        let (owner, leases) = (session.owner.as_ref(), session.load() as u64);
        self.usages
            .change(owner, |counts| less(&mut counts.leases, leases));
        match session.pod() {
            Some(pod) => drop(self.state.pods.remove(&pod.key())),
            None => self.ttls.remove(session.ttl()),
        }
        // Before what it used is free: its names are kept for its principal.
        self.state.ended.push(EndedRecord {
            session: id,
            open: session.open,
            secret: session.secret,
            cause: cause.clone(),
            at: self.state.header.time,
            owner: session.owner.clone(),
            release: None,
        });
        for wait in session.waits() {
            self.remove_waiter(&wait.name, wait.place, WaitEnd::SessionEnded);
        }
        let (grant_cause, kind) = self.end_of_grants(cause, &session);
        for (name, _) in session.holds() {
            self.free_lease(name, &grant_cause, kind, session.identity.clone());
        }
        // An evicted client has heard of nothing, and may believe in a grant that was revoked before
        // for as long as was said then.
        if !matches!(cause, SessionEnd::Evicted { .. }) || session.pod().is_some() {
            for lost in session.lost() {
                self.stop_waiting_for(&lost.name, lost.token);
            }
        }
        for lost in session.lost() {
            self.count_loss_no_more(&lost.name, lost.token);
        }
        self.events.push(Event::SessionEnded {
            session: id,
            cause: cause.clone(),
        });
    }

    /// An evicted client is not asked: it may believe for one more TTL, like a revoked one. An
    /// expired one cannot, since its window is shorter than the TTL that has passed. One that is
    /// bound to a Pod could believe for ever, so the operator who evicts it vouches for the end of
    /// its process.
    fn end_of_grants(&self, cause: &SessionEnd, session: &Session) -> (EndCause, EndKind) {
        match cause.clone() {
            SessionEnd::Closed => (EndCause::Closed, EndKind::Graceful),
            SessionEnd::Expired => (EndCause::Expired, EndKind::Abrupt),
            SessionEnd::Evicted { operator, reason } => {
                let kind = match session.pod() {
                    Some(_) => EndKind::Abrupt,
                    None => EndKind::MayStillBelieve(session.believes_until(self.time())),
                };
                (EndCause::Evicted { operator, reason }, kind)
            }
            SessionEnd::PodEnded { uid, seen } => {
                (EndCause::PodEnded { uid, seen }, EndKind::Abrupt)
            }
        }
    }

    /// Ends a grant of a session that lives on.
    pub(crate) fn end_grant(&mut self, name: &LeaseName, cause: &EndCause, kind: EndKind) {
        let Some(grant) = self.grant_of(name) else {
            return;
        };
        let (id, request, token) = (grant.session, grant.request, grant.token);
        let identity = self.change_session(id, |session| {
            // Its request is answered from the present, so a retry must not find the grant any more.
            session.remove_hold(name);
            if !planted(Bug::EndedToldAsHeld) {
                let (name, cause) = (name.clone(), cause.clone());
                let answer = Answer::Ended { name, token, cause };
                session.requests.settle(request, answer);
            }
            session.identity.clone()
        });
        let Some(identity) = identity else {
            return;
        };
        self.free_lease(name, cause, kind, identity);
    }

    fn free_lease(
        &mut self,
        name: &LeaseName,
        cause: &EndCause,
        kind: EndKind,
        identity: Identity,
    ) {
        let now = self.time();
        let knows_repeats = self.is_at(LEVEL_REPEATS);
        let ended = self.change_lease(name, |lease| {
            let grant = lease.grant.take()?;
            let (session, token) = (grant.session, grant.token);
            let (lock_delay, revoked) = match kind {
                EndKind::Graceful => (Millis(0), None),
                EndKind::Abrupt => (grant.lock_delay, None),
                EndKind::MayStillBelieve(until) => {
                    let holder = RevokedHolder {
                        session,
                        token,
                        until,
                    };
                    (grant.lock_delay, Some(holder))
                }
            };
            let block = Block {
                lock_delay_until: now.after(lock_delay),
                revoked,
            };
            // A block that is over already would keep the next grant waiting for the next entry.
            lease.blocked = (block.over() > now).then(|| Box::new(block));
            lease.idle_since = now;
            // Older releases do not keep it, and equal entries make equal states on all of them.
            if knows_repeats && matches!(cause, EndCause::Revoked { .. }) {
                lease.revoked = Some(token);
            }
            Some(grant)
        });
        let Some(grant) = ended.flatten() else {
            return;
        };
        self.state.held -= 1;
        self.object_freed(name, &identity, cause);
        self.events.push(Event::Ended {
            name: name.clone(),
            token: grant.token,
            session: grant.session,
            identity,
            cause: cause.clone(),
            at: self.state.header.wall,
        });
    }

    /// The holder of a lost grant cannot believe any more, or need not be waited for: the next one
    /// is not kept waiting by it. Whether it was waited for.
    pub(crate) fn stop_waiting_for(&mut self, name: &LeaseName, token: FencingToken) -> bool {
        let now = self.time();
        let waited = self.change_lease(name, |lease| {
            let Some(block) = lease.blocked.as_mut() else {
                return false;
            };
            if block.revoked.is_none_or(|revoked| revoked.token != token) {
                return false;
            }
            block.revoked = None;
            lease.lift_block(now);
            true
        });
        waited.unwrap_or(false)
    }
}
