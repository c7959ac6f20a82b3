//! Grants: the only place that takes tokens.

use alloc::boxed::Box;
use alloc::vec::Vec;

use ringfence_planted::{Bug, planted};

use crate::budget::Budget;
use crate::command::Acquire;
use crate::deadlines::Due;
use crate::event::{Event, Granted};
use crate::id::{FencingToken, RequestNumber, SessionId};
use crate::lease::{Lease, Waiter};
use crate::machine::StateMachine;
use crate::name::{HolderData, LeaseName};
use crate::outcome::{Acquired, Holder, Limit, Rejection};
use crate::session::Wait;
use crate::settings::{LOCK_DELAY_MAX, WAIT_MAX};
use crate::snapshot::{Answer, GrantRecord};
use crate::time::Millis;

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
            // Its time may be over, and nobody has looked since.
            self.lift_block(&ask.name);
            self.after_change(&ask.name);
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
                self.enqueue(session, request, ask, wait);
                Ok(Answer::Waiting {
                    name: ask.name.clone(),
                })
            }
            (None, _) => {
                self.check_room(session, &ask.name)?;
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
        if self.leases.len() as u64 >= max && self.leases.get(name).is_none() {
            return Err(Rejection::Limit(Limit::Leases(max)));
        }
        Ok(())
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
            let identity = self.sessions.get(grant.session)?.identity.clone();
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
        if let Some(lease) = self.leases.get_mut(&ask.name) {
            lease.queue.insert(place, waiter);
        } else {
            let mut lease = Lease::default();
            lease.queue.insert(place, waiter);
            self.leases.insert(ask.name.clone(), lease);
        }
        self.waiters += 1;
        self.deadlines.insert(
            until,
            Due::Wait {
                place,
                name: ask.name.clone(),
            },
        );
        if let Some(session) = self.sessions.get_mut(session) {
            session.add_wait(Wait {
                number: request,
                name: ask.name.clone(),
                place,
            });
        }
        // Quiet time keeps a lease from its queue without a block of its own.
        self.after_change(&ask.name);
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
        if let Some(lease) = self.leases.get_mut(name) {
            (lease.floor, lease.grant) = (Some(token), Some(grant));
        } else {
            let mut lease = Lease::default();
            (lease.floor, lease.grant) = (Some(token), Some(grant));
            self.leases.insert(name.clone(), lease);
        }
        Some(token)
    }

    /// The grant in force, as events and answers show it.
    pub(crate) fn granted(&self, name: &LeaseName) -> Option<Granted> {
        let grant = self.leases.get(name)?.grant.as_deref()?;
        Some(Granted {
            name: name.clone(),
            token: grant.token,
            session: grant.session,
            identity: self.sessions.get(grant.session)?.identity.clone(),
            data: grant.data.clone(),
            request: grant.request,
            index: grant.index,
            since: grant.since,
        })
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
        lease.unserved = false;
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
            lease.unserved = true;
            self.unserved.push(name);
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
        let waiter = self.leases.get_mut(name)?.queue.remove(&place)?;
        self.waiters -= 1;
        self.deadlines.remove(
            waiter.until,
            Due::Wait {
                place,
                name: name.clone(),
            },
        );
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
