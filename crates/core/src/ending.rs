//! Ends: of sessions, of grants, of waits, and of names that are not in use any more.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use ringfence_planted::{Bug, planted};

use crate::budget::Budget;
use crate::deadlines::Due;
use crate::event::{EndCause, Event, SessionEnd, WaitEnd};
use crate::id::{FencingToken, SessionId};
use crate::lease::{Lease, LeaseDue};
use crate::level::LEVEL_REPEATS;
use crate::machine::StateMachine;
use crate::name::{Identity, LeaseName};
use crate::outcome::LostGrant;
use crate::session::{EndedSession, Session, Wait};
use crate::settings::OPEN_AGE_MAX;
use crate::snapshot::{Answer, Block, RevokedHolder};
use crate::time::ClusterTime;

/// How the end of a grant bears on the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The holder has stopped: the next one may follow at once.
    Clean,
    /// The holder did not say so: its lock-delay runs.
    Dirty,
    /// Besides, the holder may believe until this time.
    Believed(ClusterTime),
}

impl StateMachine {
    /// Ends everything whose time has come, in the order (deadline, number), as far as the budget
    /// goes.
    pub(crate) fn settle_due(&mut self, budget: &mut Budget, events: &mut Vec<Event>) {
        let repeats = self.is_at(LEVEL_REPEATS) || planted(Bug::NewOrderBelowItsLevel);
        while budget.look() {
            let due = match repeats {
                true => self.deadlines.pop(self.time),
                false => self.deadlines.pop_below_repeats(self.time),
            };
            match due {
                Some(Due::Session(id)) => self.session_due(id, budget, events),
                Some(Due::Wait { place, name }) => {
                    budget.wait_ended();
                    self.wait_due(place, &name, events);
                }
                Some(Due::Block(name)) => self.block_due(&name),
                Some(Due::Look(at, name)) => self.look_at(at, &name, events),
                None => break,
            }
        }
        while repeats
            && budget.forget()
            && let Some(name) = self
                .deadlines
                .pop_idle(self.time, self.settings.idle_retention)
        {
            self.forget(&name, events);
        }
        while self
            .ended
            .oldest()
            .is_some_and(|at| at.after(OPEN_AGE_MAX) <= self.time)
            && budget.look()
        {
            if let Some(ended) = self.ended.pop() {
                self.opens.remove(&ended.open);
            }
        }
    }

    fn session_due(&mut self, id: SessionId, budget: &mut Budget, events: &mut Vec<Event>) {
        // A session that ends takes its deadline along, so one that comes due is alive.
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let deadline = session.deadline(self.term_start);
        if deadline > session.armed {
            // It was renewed since. Back to its true place; if that has come too, it is looked at
            // again in its turn.
            session.armed = deadline;
            self.deadlines.insert_session(deadline, id);
        } else {
            let endings = self.end_session(id, &SessionEnd::Expired, events);
            budget.session_ended(endings);
            if planted(Bug::GrantsWhileEnding) {
                self.serve_queues(budget, events);
            }
        }
    }

    fn wait_due(&mut self, place: u64, name: &LeaseName, events: &mut Vec<Event>) {
        let now = self.time;
        let left = self.change_lease(name, |lease| lease.leave(place, now));
        let Some(waiter) = left.flatten() else {
            return;
        };
        self.waiters -= 1;
        if let Some(session) = self.sessions.get_mut(waiter.session) {
            session.remove_wait(waiter.request);
            session
                .requests
                .settle(waiter.request, Answer::TimedOut { name: name.clone() });
        }
        events.push(Event::WaitEnded {
            name: name.clone(),
            session: waiter.session,
            request: waiter.request,
            why: WaitEnd::TimedOut,
        });
    }

    fn block_due(&mut self, name: &LeaseName) {
        if planted(Bug::LockDelayWakesNobody) {
            let now = self.time;
            if let Some(lease) = self.leases.get_mut(name) {
                (lease.blocked, lease.idle_since) = (None, now);
            }
            return;
        }
        self.lift_block(name);
    }

    /// Below [`LEVEL_REPEATS`]: lifts the block of a lease, or forgets it, if its time was over when it
    /// was to be looked at.
    fn look_at(&mut self, at: ClusterTime, name: &LeaseName, events: &mut Vec<Event>) {
        let retention = self.settings.idle_retention;
        match self.leases.get(name).and_then(Lease::due) {
            // It changed since. If its true time has come too, it is looked at again in its turn.
            Some(due) if due.over(retention) > at => {
                self.deadlines.looks.look(name, due.over(retention));
            }
            Some(LeaseDue::Block(_)) => self.block_due(name),
            Some(LeaseDue::Idle(_)) => self.forget(name, events),
            None => {}
        }
    }

    /// Takes away a block whose time is over.
    pub(crate) fn lift_block(&mut self, name: &LeaseName) {
        let now = self.time;
        self.change_lease(name, |lease| {
            let block = lease.blocked.as_ref();
            if block.is_some_and(|block| block.over() <= now) {
                lease.blocked = None;
                lease.idle_since = now;
            }
        });
    }

    /// Forgets an idle lease; of its floor only that it was at most [`StateMachine::forgotten`].
    pub(crate) fn forget(&mut self, name: &LeaseName, events: &mut Vec<Event>) {
        let Some(lease) = self.leases.remove(name) else {
            return;
        };
        self.deadlines.move_lease(name, lease.due(), None);
        if let Some(place) = lease.unserved {
            // Its waiters left before its turn came, in a quiet time or a storm. What is named in
            // that list has to be there.
            drop(self.unserved.remove(place.get()));
        }
        if !planted(Bug::FloorForgottenForGood) {
            self.forgotten = self.forgotten.max(lease.floor);
        }
        if let Some(floor) = lease.floor {
            events.push(Event::Forgotten {
                name: name.clone(),
                floor,
            });
        }
    }

    /// Changes a lease and then puts it where its new state wants it: among those to be served, and
    /// among the deadlines. `None` if there is no such lease.
    pub(crate) fn change_lease<R>(
        &mut self,
        name: &LeaseName,
        change: impl FnOnce(&mut Lease) -> R,
    ) -> Option<R> {
        let lease = self.leases.get_mut(name)?;
        let before = lease.due();
        let result = change(lease);
        if lease.wants_serving() && lease.unserved.is_none() {
            lease.unserved = NonZeroU64::new(self.unserved.push(name.clone()));
        }
        let after = lease.due();
        self.move_lease(name, before, after);
        Some(result)
    }

    /// Puts a lease where it belongs among the deadlines.
    fn move_lease(&mut self, name: &LeaseName, from: Option<LeaseDue>, to: Option<LeaseDue>) {
        self.deadlines.move_lease(name, from, to);
        if from != to
            && let Some(due) = to
            && !self.is_at(LEVEL_REPEATS)
        {
            let over = due.over(self.settings.idle_retention);
            self.deadlines.looks.look(name, over);
        }
    }

    /// The same for a lease that may not be there yet. A new one is given to a session, or is
    /// waited for.
    pub(crate) fn change_or_make_lease(
        &mut self,
        name: &LeaseName,
        change: impl FnOnce(&mut Lease),
    ) {
        let mut change = Some(change);
        let found = self.change_lease(name, |lease| {
            if let Some(change) = change.take() {
                change(lease);
            }
        });
        if found.is_some() {
            return;
        }
        let mut lease = Lease::default();
        if let Some(change) = change {
            change(&mut lease);
        }
        if lease.wants_serving() {
            lease.unserved = NonZeroU64::new(self.unserved.push(name.clone()));
        }
        self.move_lease(name, None, lease.due());
        self.leases.insert(name.clone(), lease);
    }

    /// Ends a session with all it holds and waits for; says how many that were.
    pub(crate) fn end_session(
        &mut self,
        id: SessionId,
        cause: &SessionEnd,
        events: &mut Vec<Event>,
    ) -> usize {
        let Some(session) = self.sessions.remove(id) else {
            return 0;
        };
        self.deadlines.remove_session(session.armed, id);
        match session.pod() {
            Some(pod) => drop(self.pods.remove(&pod.key())),
            None => self.ttls.remove(session.ttl),
        }
        let endings = session.holds().len() + session.waits().len();

        for wait in session.waits() {
            if planted(Bug::GhostWaiter) {
                break;
            }
            self.remove_waiter(wait, events, WaitEnd::SessionEnded, id);
        }
        let (grant_cause, manner) = self.manner_of(cause, &session);
        for (name, _) in session.holds() {
            self.detach_grant(name, &session, &grant_cause, manner, events);
        }
        // Who was evicted has heard of nothing, and may believe in a grant that was revoked before
        // for as long as was said then.
        if !matches!(cause, SessionEnd::Evicted { .. }) || session.pod().is_some() {
            for lost in session.lost() {
                self.stop_waiting_for(&lost.name, lost.token);
            }
        }
        events.push(Event::SessionEnded {
            session: id,
            cause: cause.clone(),
        });
        let Session { open, secret, .. } = session;
        let ended = EndedSession {
            open,
            secret,
            cause: cause.clone(),
            at: self.time,
            release: None,
        };
        self.ended.push(id, ended);
        if planted(Bug::OpenIdForgotten) {
            self.opens.remove(&open);
        }
        endings
    }

    /// An evicted client is not asked: it may believe for one more TTL, like a revoked one. An
    /// expired one cannot, since its window is shorter than the TTL that has passed. One that is
    /// bound to a Pod could believe for ever, so the operator who evicts it asserts that its
    /// process has ended.
    fn manner_of(&self, cause: &SessionEnd, session: &Session) -> (EndCause, Manner) {
        match cause {
            SessionEnd::Closed => (EndCause::Closed, Manner::Clean),
            SessionEnd::Expired => (EndCause::Expired, Manner::Dirty),
            SessionEnd::Evicted { operator, reason } => {
                let (operator, reason) = (operator.clone(), reason.clone());
                let manner = match session.pod() {
                    Some(_) => Manner::Dirty,
                    None => Manner::Believed(self.time.after(session.ttl)),
                };
                (EndCause::Evicted { operator, reason }, manner)
            }
            SessionEnd::PodEnded { uid, seen } => {
                let (uid, seen) = (uid.clone(), *seen);
                (EndCause::PodEnded { uid, seen }, Manner::Dirty)
            }
        }
    }

    /// Takes a place out of its queue. The session's own side is the caller's business.
    pub(crate) fn remove_waiter(
        &mut self,
        wait: &Wait,
        events: &mut Vec<Event>,
        why: WaitEnd,
        session: SessionId,
    ) {
        let now = self.time;
        let left = self.change_lease(&wait.name, |lease| lease.leave(wait.place, now));
        let Some(waiter) = left.flatten() else {
            return;
        };
        self.waiters -= 1;
        let name = wait.name.clone();
        self.deadlines
            .remove_wait(waiter.until, wait.place, name.clone());
        events.push(Event::WaitEnded {
            name,
            session,
            request: wait.number,
            why,
        });
    }

    /// Ends a grant at its holder's wish, within its living session.
    pub(crate) fn end_grant(
        &mut self,
        name: &LeaseName,
        cause: &EndCause,
        events: &mut Vec<Event>,
    ) {
        self.end_held(name, cause, Manner::Clean, events);
    }

    /// Ends a grant at an operator's wish; the session lives on and learns of it with its
    /// keep-alives.
    pub(crate) fn revoke_grant(
        &mut self,
        name: &LeaseName,
        cause: &EndCause,
        now: bool,
        events: &mut Vec<Event>,
    ) {
        let Some(grant) = self
            .leases
            .get(name)
            .and_then(|lease| lease.grant.as_deref())
        else {
            return;
        };
        let (id, token) = (grant.session, grant.token);
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.add_lost(LostGrant {
            name: name.clone(),
            token,
            cause: cause.clone(),
        });
        let believed = Manner::Believed(self.time.after(session.ttl));
        self.end_held(
            name,
            cause,
            if now || planted(Bug::RevokeGrantsAtOnce) {
                Manner::Dirty
            } else {
                believed
            },
            events,
        );
    }

    fn end_held(
        &mut self,
        name: &LeaseName,
        cause: &EndCause,
        manner: Manner,
        events: &mut Vec<Event>,
    ) {
        let Some(grant) = self
            .leases
            .get(name)
            .and_then(|lease| lease.grant.as_deref())
        else {
            return;
        };
        let (id, request, token) = (grant.session, grant.request, grant.token);
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.remove_hold(name);
        if !planted(Bug::EndedToldAsHeld) {
            session.requests.grant_ended(request, name, token, cause);
        }
        let identity = session.identity.clone();
        self.free_lease(name, cause, manner, identity, events);
    }

    /// The same for a session that is already out of the table.
    fn detach_grant(
        &mut self,
        name: &LeaseName,
        session: &Session,
        cause: &EndCause,
        manner: Manner,
        events: &mut Vec<Event>,
    ) {
        self.free_lease(name, cause, manner, session.identity.clone(), events);
    }

    fn free_lease(
        &mut self,
        name: &LeaseName,
        cause: &EndCause,
        manner: Manner,
        identity: Identity,
        events: &mut Vec<Event>,
    ) {
        let now = self.time;
        let knows_repeats = self.is_at(LEVEL_REPEATS);
        let ended = self.change_lease(name, |lease| {
            let grant = lease.grant.take()?;
            let lock_delay_until = match manner {
                Manner::Clean => now,
                Manner::Dirty | Manner::Believed(_) if planted(Bug::LockDelayDropped) => now,
                Manner::Dirty | Manner::Believed(_) => now.after(grant.lock_delay),
            };
            let revoked = match manner {
                Manner::Clean | Manner::Dirty => None,
                Manner::Believed(until) => Some(RevokedHolder {
                    session: grant.session,
                    token: grant.token,
                    until,
                }),
            };
            let block = Block {
                lock_delay_until,
                revoked,
            };
            lease.blocked = (block.over() > now).then(|| Box::new(block));
            lease.idle_since = now;
            if knows_repeats && matches!(cause, EndCause::Revoked { .. }) {
                lease.revoked = Some(grant.token);
            }
            Some(grant)
        });
        let Some(grant) = ended.flatten() else {
            return;
        };
        self.held -= 1;
        events.push(Event::Ended {
            name: name.clone(),
            token: grant.token,
            session: grant.session,
            identity,
            cause: cause.clone(),
            at: self.wall,
        });
    }

    /// The holder of a lost grant cannot believe any more, or need not be waited for: the next one
    /// is not kept waiting by it.
    pub(crate) fn stop_waiting_for(&mut self, name: &LeaseName, token: FencingToken) {
        let now = self.time;
        self.change_lease(name, |lease| {
            let Some(block) = lease.blocked.as_mut() else {
                return;
            };
            if block.revoked.is_some_and(|revoked| revoked.token == token) {
                block.revoked = None;
                if block.over() <= now {
                    lease.blocked = None;
                    lease.idle_since = now;
                }
            }
        });
    }
}
