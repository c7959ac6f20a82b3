//! Ends: of sessions, of grants, of waits, and of names that nobody uses any more.

use alloc::boxed::Box;
use alloc::vec::Vec;

use ringfence_planted::{Bug, planted};

use crate::budget::Budget;
use crate::deadlines::{Deadlines, Due};
use crate::event::{EndCause, Event, SessionEnd, WaitEnd};
use crate::id::SessionId;
use crate::lease::Lease;
use crate::line::Line;
use crate::machine::StateMachine;
use crate::name::{Identity, LeaseName};
use crate::outcome::LostGrant;
use crate::session::{EndedSession, Session, Wait};
use crate::settings::OPEN_AGE_MAX;
use crate::snapshot::{Answer, Block, RevokedHolder};
use crate::time::{ClusterTime, Millis};

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
        while budget.look() {
            match self.deadlines.pop(self.time) {
                Some(Due::Session(id)) => self.session_due(id, budget, events),
                Some(Due::Wait { place, name }) => {
                    budget.wait_ended();
                    self.wait_due(place, &name, events);
                }
                Some(Due::Lease(name)) => self.lease_due(&name, events),
                None => break,
            }
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
            self.deadlines.insert(deadline, Due::Session(id));
        } else {
            let endings = self.end_session(id, &SessionEnd::Expired, events);
            budget.session_ended(endings);
            if planted(Bug::GrantsWhileEnding) {
                self.serve_queues(budget, events);
            }
        }
    }

    fn wait_due(&mut self, place: u64, name: &LeaseName, events: &mut Vec<Event>) {
        let Some(waiter) = self
            .leases
            .get_mut(name)
            .and_then(|lease| lease.queue.remove(&place))
        else {
            return;
        };
        self.waiters -= 1;
        self.note_idle(name);
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
        self.after_change(name);
    }

    /// Looks at a lease whose time has come: lifts its block, or forgets it.
    fn lease_due(&mut self, name: &LeaseName, events: &mut Vec<Event>) {
        let retention = self.settings.idle_retention;
        let Some(lease) = self.leases.get_mut(name) else {
            return;
        };
        let Some(armed) = lease.armed() else {
            return;
        };
        lease.arm(None);
        if lease.due(retention).is_none_or(|due| due > armed) {
            // It changed since. Back to its true place; if that has come too, it is looked at again
            // in its turn.
            self.after_change(name);
            return;
        }
        if lease.is_idle() {
            let floor = lease.floor;
            if lease.unserved {
                // Its waiters left before its turn came, in a quiet time or a storm. What is named
                // in that list has to be there.
                drop(self.unserved.take(|unserved| unserved == name));
            }
            self.leases.remove(name);
            if !planted(Bug::FloorForgottenForGood) {
                self.forgotten = self.forgotten.max(floor);
            }
            if let Some(floor) = floor {
                events.push(Event::Forgotten {
                    name: name.clone(),
                    floor,
                });
            }
            return;
        }
        self.lift_block(name);
        if !planted(Bug::LockDelayWakesNobody) {
            self.after_change(name);
        }
    }

    /// Begins a lease's idle time after the last one has left its queue.
    fn note_idle(&mut self, name: &LeaseName) {
        let now = self.time;
        if let Some(lease) = self.leases.get_mut(name)
            && lease.is_idle()
        {
            lease.idle_since = now;
        }
    }

    /// Takes away a block whose time is over.
    pub(crate) fn lift_block(&mut self, name: &LeaseName) {
        let now = self.time;
        if let Some(lease) = self.leases.get_mut(name)
            && lease
                .blocked
                .as_ref()
                .is_some_and(|block| block.over() <= now)
        {
            lease.blocked = None;
            lease.idle_since = now;
        }
    }

    /// Puts a lease where its state wants it: among those to be served, and among the deadlines.
    /// To be called after whatever ends a grant, a wait or a block.
    pub(crate) fn after_change(&mut self, name: &LeaseName) {
        let Some(lease) = self.leases.get_mut(name) else {
            return;
        };
        let (unserved, deadlines) = (&mut self.unserved, &mut self.deadlines);
        place(
            name,
            lease,
            unserved,
            deadlines,
            self.settings.idle_retention,
        );
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
        self.deadlines.remove(session.armed, Due::Session(id));
        if let Some(pod) = session.pod() {
            self.pods.remove(&pod.key());
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
                self.loss_known(lost);
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
        };
        self.ended.push(id, ended);
        if planted(Bug::OpenIdForgotten) {
            self.opens.remove(&open);
        }
        endings
    }

    /// An evicted client is not asked: it may believe for one more TTL, like a revoked one. An
    /// expired one cannot, since its window is shorter than the TTL that has passed. One that is
    /// bound to a Pod could believe for ever, so whoever evicts it gives his word that its process
    /// has ended.
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
        let Some(lease) = self.leases.get_mut(&wait.name) else {
            return;
        };
        let Some(waiter) = lease.queue.remove(&wait.place) else {
            return;
        };
        self.waiters -= 1;
        self.note_idle(&wait.name);
        let (name, place) = (wait.name.clone(), wait.place);
        self.deadlines.remove(
            waiter.until,
            Due::Wait {
                place,
                name: name.clone(),
            },
        );
        events.push(Event::WaitEnded {
            name,
            session,
            request: wait.number,
            why,
        });
        self.after_change(&wait.name);
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

    /// Ends a grant at an operator's wish; the session lives on and is told with its keep-alives.
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
        let Some(lease) = self.leases.get_mut(name) else {
            return;
        };
        let Some(grant) = lease.grant.take() else {
            return;
        };
        self.held -= 1;
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
        events.push(Event::Ended {
            name: name.clone(),
            token: grant.token,
            session: grant.session,
            identity,
            cause: cause.clone(),
            at: self.wall,
        });
        let (unserved, deadlines) = (&mut self.unserved, &mut self.deadlines);
        place(
            name,
            lease,
            unserved,
            deadlines,
            self.settings.idle_retention,
        );
    }

    /// The holder of a lost grant cannot believe any more: the next one need not wait for it.
    pub(crate) fn loss_known(&mut self, lost: &LostGrant) {
        let Some(block) = self
            .leases
            .get_mut(&lost.name)
            .and_then(|lease| lease.blocked.as_mut())
        else {
            return;
        };
        if block
            .revoked
            .is_some_and(|revoked| revoked.token == lost.token)
        {
            block.revoked = None;
            self.lift_block(&lost.name);
            self.after_change(&lost.name);
        }
    }
}

/// Puts a lease where its state wants it.
fn place(
    name: &LeaseName,
    lease: &mut Lease,
    unserved: &mut Line<LeaseName>,
    deadlines: &mut Deadlines,
    idle_retention: Millis,
) {
    if lease.wants_serving() && !lease.unserved {
        lease.unserved = true;
        unserved.push(name.clone());
    }
    let Some(wanted) = lease.due(idle_retention) else {
        return;
    };
    if let Some(armed) = lease.armed() {
        if armed <= wanted {
            return;
        }
        deadlines.remove(armed, Due::Lease(name.clone()));
    }
    lease.arm(Some(wanted));
    deadlines.insert(wanted, Due::Lease(name.clone()));
}
