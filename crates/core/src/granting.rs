//! Grants: the only place that takes tokens.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use ringfence_planted::{Bug, planted};

use crate::budget::Budget;
use crate::command::Acquire;
use crate::event::{Event, Granted};
use crate::id::{FencingToken, RequestNumber, SessionId};
use crate::lease::Waiter;
use crate::level::LEVEL_REPEATS;
use crate::machine::StateMachine;
use crate::name::{HolderData, LeaseName};
use crate::outcome::{Acquired, Holder, Limit, Rejection};
use crate::session::Wait;
use crate::settings::{LOCK_DELAY_MAX, WAIT_MAX};
use crate::snapshot::{Answer, GrantRecord};
use crate::tables::{granted, identity_of};
use crate::time::Millis;

/// The most idle names that one new name displaces.
const FORGOTTEN_PER_NAME_MAX: u32 = 2;

/// Who is granted, for which request, and what goes with the grant.
struct Award {
    session: SessionId,
    request: RequestNumber,
    data: HolderData,
    lock_delay: Millis,
}

impl StateMachine {
    /// Grants a lease, queues the request, or says why not. The session is alive.
    pub(crate) fn acquire(
        &mut self,
        session: SessionId,
        request: RequestNumber,
        ask: &Acquire,
        events: &mut Vec<Event>,
    ) -> Result<Answer, Rejection> {
        check_lengths(ask)?;
        let mut obstacle = self.obstacle(session, &ask.name);
        if let Some(Rejection::Held { holder, mine: true }) = &obstacle
            && planted(Bug::MineIsGrantedAgain)
        {
            let (name, token) = (ask.name.clone(), holder.token);
            return Ok(Answer::Granted { name, token });
        }
        if let Some(Rejection::LockDelay { .. } | Rejection::Revoking { .. }) = obstacle {
            // Its time may be over, and no entry has looked since.
            self.lift_block(&ask.name);
            obstacle = self.obstacle(session, &ask.name);
        }
        let wait = match &obstacle {
            // Who has it, or cannot have it, passes no limit.
            Some(Rejection::Held { mine: true, .. }) => None,
            _ => ask.wait,
        };
        match (obstacle, wait) {
            (Some(obstacle), None) => Err(obstacle),
            (Some(_), Some(wait)) => {
                self.check_room(session, &ask.name)?;
                self.check_queue(&ask.name)?;
                self.make_room(&ask.name, events);
                self.enqueue(session, request, ask, wait);
                Ok(Answer::Waiting {
                    name: ask.name.clone(),
                })
            }
            (None, _) => {
                self.check_room(session, &ask.name)?;
                if self.counter >= FencingToken::MAX {
                    return Err(Rejection::TokensExhausted);
                }
                self.make_room(&ask.name, events);
                let award = Award {
                    session,
                    request,
                    data: ask.data.clone(),
                    lock_delay: ask.lock_delay,
                };
                let token = self.grant(&ask.name, award, events);
                let token = token.ok_or(Rejection::TokensExhausted)?;
                let name = ask.name.clone();
                Ok(Answer::Granted { name, token })
            }
        }
    }

    /// Whether there is room for one more lease or wait of the session, and for the name.
    fn check_room(&self, session: SessionId, name: &LeaseName) -> Result<(), Rejection> {
        let max = self.settings.session_leases_max;
        let load = self
            .sessions
            .get(session)
            .map_or(0, |session| session.load());
        if load >= max as usize {
            return Err(Rejection::Limit(Limit::SessionLeases(max)));
        }
        let max = self.settings.leases_max;
        let full = self.leases.len() as u64 >= max && self.leases.get(name).is_none();
        let makes_room = self.is_at(LEVEL_REPEATS) && self.deadlines.longest_idle().is_some();
        if full && !makes_room {
            return Err(Rejection::Limit(Limit::Leases(max)));
        }
        Ok(())
    }

    /// Makes room for a new name in a full table: what has been idle for the longest time is forgotten
    /// before its retention is over. Its floor stays covered by the greatest forgotten one. Where a
    /// lowered limit has left more names than it allows, two go for each that comes.
    fn make_room(&mut self, name: &LeaseName, events: &mut Vec<Event>) {
        if self.leases.get(name).is_some() {
            return;
        }
        for _ in 0..FORGOTTEN_PER_NAME_MAX {
            if (self.leases.len() as u64) < self.settings.leases_max {
                return;
            }
            let Some(idle) = self.deadlines.longest_idle().cloned() else {
                return;
            };
            self.forget(&idle, events);
        }
    }

    /// Whether there is room for one more waiter.
    fn check_queue(&self, name: &LeaseName) -> Result<(), Rejection> {
        let max = self.settings.lease_waiters_max;
        let waiters = self.leases.get(name).map_or(0, |lease| lease.waiters());
        if waiters >= max {
            return Err(Rejection::Limit(Limit::LeaseWaiters(max)));
        }
        Ok(())
    }

    /// What keeps the lease from being granted to this session now.
    fn obstacle(&self, session: SessionId, name: &LeaseName) -> Option<Rejection> {
        let lease = self.leases.get(name);
        if let Some(grant) = lease.and_then(|lease| lease.grant.as_deref()) {
            // Every holder is alive. If one were not there, the lease would still be held: a doubt
            // about the state must not grant it a second time.
            let identity = identity_of(&self.sessions, grant.session);
            let (token, data) = (grant.token, grant.data.clone());
            let holder = Holder {
                session: grant.session,
                identity,
                token,
                data,
            };
            return Some(Rejection::Held {
                holder,
                mine: grant.session == session,
            });
        }
        if let Some(block) = lease.and_then(|lease| lease.blocked.as_deref()) {
            if let Some(revoked) = block.revoked
                && revoked.until > self.time
            {
                return Some(Rejection::Revoking {
                    remaining: block.over().since(self.time),
                });
            }
            let remaining = block.lock_delay_until.since(self.time);
            return Some(Rejection::LockDelay { remaining });
        }
        if self.quiet_until > self.time && !planted(Bug::QuietTimeIgnored) {
            return Some(Rejection::QuietTime {
                remaining: self.quiet_until.since(self.time),
            });
        }
        let waiters = lease.map_or(0, |lease| lease.waiters());
        (waiters > 0).then_some(Rejection::Queued { waiters })
    }

    fn enqueue(&mut self, session: SessionId, request: RequestNumber, ask: &Acquire, wait: Millis) {
        let place = self.next_place;
        self.next_place += 1;
        let until = self.time.after(wait);
        let (data, lock_delay) = (ask.data.clone(), ask.lock_delay);
        let waiter = Waiter {
            session,
            request,
            until,
            data,
            lock_delay,
        };
        // Quiet time keeps a lease from its queue without a block of its own, so it may want serving.
        self.change_or_make_lease(&ask.name, |lease| {
            lease.queue.insert(place, waiter);
        });
        self.waiters += 1;
        self.deadlines.insert_wait(until, place, ask.name.clone());
        if let Some(session) = self.sessions.get_mut(session) {
            session.add_wait(Wait {
                number: request,
                name: ask.name.clone(),
                place,
            });
        }
    }

    /// Grants a free lease; `None` if no token is left.
    fn grant(
        &mut self,
        name: &LeaseName,
        award: Award,
        events: &mut Vec<Event>,
    ) -> Option<FencingToken> {
        let mut token = FencingToken::new(self.counter.checked_add(1)?)?;
        if planted(Bug::TokenPerLease) {
            let floor = self.leases.get(name).and_then(|lease| lease.floor);
            token = FencingToken::new(floor.map_or(1, |floor| floor.get() + 1))?;
        }
        self.counter = token.get();
        self.last_token = token.get();
        let Award {
            session,
            request,
            data,
            lock_delay,
        } = award;
        let (index, since) = (self.index, self.wall);
        let holder = self.sessions.get_mut(session)?;
        holder.add_hold(name.clone(), token);
        events.push(Event::Granted(Granted {
            name: name.clone(),
            token,
            session,
            identity: holder.identity.clone(),
            data: data.clone(),
            request,
            index,
            since,
        }));
        let grant = Box::new(GrantRecord {
            token,
            session,
            request,
            data,
            lock_delay,
            index,
            since,
        });
        self.held += 1;
        self.change_or_make_lease(name, |lease| {
            (lease.floor, lease.grant) = (Some(token), Some(grant));
        });
        Some(token)
    }

    /// The grant in force, as events and answers show it.
    pub(crate) fn granted(&self, name: &LeaseName) -> Option<Granted> {
        granted(&self.sessions, name, self.leases.get(name)?)
    }

    /// How a remembered acquire stands now.
    pub(crate) fn standing_of(&self, answer: &Answer) -> Option<Acquired> {
        Some(match answer {
            Answer::Granted { name, .. } => Acquired::Granted(self.granted(name)?),
            Answer::Waiting { name } => Acquired::Waiting { name: name.clone() },
            Answer::Ended { name, token, cause } => {
                let (name, token) = (name.clone(), *token);
                Acquired::Ended {
                    name,
                    token,
                    cause: Some(cause.clone()),
                }
            }
            Answer::TimedOut { name } => Acquired::TimedOut { name: name.clone() },
            Answer::Cancelled { name } => Acquired::Cancelled { name: name.clone() },
            Answer::Refused(rejection) => Acquired::Refused(rejection.clone()),
            Answer::Released { .. } | Answer::Transferred { .. } | Answer::CancelDone(_) => {
                return None;
            }
        })
    }

    /// Grants free leases to the heads of their queues, as far as the budget goes.
    pub(crate) fn serve_queues(&mut self, budget: &mut Budget, events: &mut Vec<Event>) {
        if self.quiet_until > self.time {
            return;
        }
        for _ in 0..self.unserved.len() {
            if !budget.serve() {
                return;
            }
            let Some(name) = self.unserved.pop() else {
                return;
            };
            self.serve(name, events);
        }
    }

    fn serve(&mut self, name: LeaseName, events: &mut Vec<Event>) {
        let (now, term_start) = (self.time, self.term_start);
        let Some(lease) = self.leases.get_mut(&name) else {
            return;
        };
        lease.unserved = None;
        if !lease.wants_serving() {
            return;
        }
        let mut head = lease.queue.first();
        if planted(Bug::NewestServedFirst) {
            head = lease.queue.iter().last();
        }
        let Some((&place, head)) = head else {
            return;
        };
        let (session, until) = (head.session, head.until);
        let over = until <= now
            || self
                .sessions
                .get(session)
                .is_none_or(|head| !head.lives(term_start, now));
        if over {
            // The budget ended before its turn to end came; it must not be granted any more.
            lease.unserved = NonZeroU64::new(self.unserved.push(name));
            return;
        }
        self.grant_to_waiter(&name, place, events);
    }

    /// Grants a free lease to a place in its queue.
    pub(crate) fn grant_to_waiter(
        &mut self,
        name: &LeaseName,
        place: u64,
        events: &mut Vec<Event>,
    ) -> Option<FencingToken> {
        // The grant follows: meanwhile the lease is not idle, nor does it want to be served.
        let waiter = self.leases.get_mut(name)?.queue.remove(&place)?;
        self.waiters -= 1;
        self.deadlines
            .remove_wait(waiter.until, place, name.clone());
        let Waiter {
            session: id,
            request,
            data,
            lock_delay,
            ..
        } = waiter;
        let session = self.sessions.get_mut(id)?;
        session.remove_wait(request);
        let token = self.grant(
            name,
            Award {
                session: id,
                request,
                data,
                lock_delay,
            },
            events,
        );
        let answer = match token {
            Some(token) => Answer::Granted {
                name: name.clone(),
                token,
            },
            None => Answer::Refused(Rejection::TokensExhausted),
        };
        self.sessions.get_mut(id)?.requests.settle(request, answer);
        token
    }
}

/// Whether the times that are asked for are allowed.
fn check_lengths(ask: &Acquire) -> Result<(), Rejection> {
    if let Some(offered) = ask.wait
        && offered > WAIT_MAX
    {
        return Err(Rejection::InvalidWait { offered });
    }
    if ask.lock_delay > LOCK_DELAY_MAX {
        let offered = ask.lock_delay;
        return Err(Rejection::InvalidLockDelay { offered });
    }
    Ok(())
}
