//! Grants: the only place that takes tokens.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use ringfence_planted::{Bug, planted};

use crate::answer::Answer;
use crate::command::Acquire;
use crate::event::Event;
use crate::id::{FencingToken, RequestNumber, SessionId};
use crate::keeping::FORGOTTEN_PER_NAME_MAX;
use crate::lease::{GrantRecord, Lease, Waiter};
use crate::level::LEVEL_REPEATS;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::outcome::{Holder, Limit, Rejection};
use crate::session::Wait;
use crate::settings::{LOCK_DELAY_MAX, WAIT_MAX};

impl StateMachine {
    /// Grants a lease, queues the request, or says why not. The session is alive.
    pub(crate) fn acquire(
        &mut self,
        session: SessionId,
        request: RequestNumber,
        ask: &Acquire,
    ) -> Result<Answer, Rejection> {
        check_lengths(ask)?;
        let name = ask.name.clone();
        // Before anything of the lease is shown: a refusal names its holder.
        self.check_right(session, &name)?;
        let queued = match self.obstacle_now(Some(session), &name) {
            // Before the limits, since what cannot be granted at all passes none.
            Some(held @ Rejection::Held { mine: true, .. }) => return Err(held),
            Some(obstacle) if ask.wait.is_none() => return Err(obstacle),
            obstacle => obstacle.is_some(),
        };
        // Before anything is queued, forgotten or granted: a refusal has no effect.
        self.check_room(session, &name)?;
        let waiter = Waiter {
            session,
            request,
            until: self.time().after(ask.wait.unwrap_or_default()),
            data: ask.data.clone(),
            lock_delay: ask.lock_delay,
        };
        if queued {
            self.check_queue(&name)?;
            self.make_room(session, &name);
            self.enqueue(&name, waiter);
            return Ok(Answer::Waiting { name });
        }
        if self.header.tokens.is_exhausted() {
            return Err(Rejection::TokensExhausted);
        }
        self.make_room(session, &name);
        let token = self.grant(&name, waiter);
        let token = token.ok_or(Rejection::TokensExhausted)?;
        Ok(Answer::Granted { name, token })
    }

    /// Whether there is room for one more lease or wait of the session, and for the name.
    fn check_room(&self, session: SessionId, name: &LeaseName) -> Result<(), Rejection> {
        let max = self.settings().session_leases_max;
        let session = self.sessions.get(&session);
        if session.is_some_and(|session| session.load() >= max as usize) {
            return Err(Rejection::Limit(Limit::SessionLeases(max)));
        }
        let owner = session.and_then(|session| session.owner.as_ref());
        self.check_principal_leases(owner, name, false)?;
        self.check_names(name)
    }

    /// Whether there is room for the name.
    pub(crate) fn check_names(&self, name: &LeaseName) -> Result<(), Rejection> {
        let max = self.settings().leases_max;
        let full = self.leases.len() as u64 >= max && self.leases.get(name).is_none();
        let makes_room = self.is_at(LEVEL_REPEATS) && self.deadlines.longest_idle().is_some();
        if full && !makes_room {
            return Err(Rejection::Limit(Limit::Leases(max)));
        }
        Ok(())
    }

    /// Makes room for a new name, of its principal and in a full table: what has been idle for the
    /// longest time is forgotten before its retention is over. Its floor stays covered by the greatest
    /// forgotten one. Where a lowered limit has left more names than it allows, two go for each that
    /// comes.
    fn make_room(&mut self, user: SessionId, name: &LeaseName) {
        self.make_room_of_principal(user, name);
        if self.leases.get(name).is_some() {
            return;
        }
        for _ in 0..FORGOTTEN_PER_NAME_MAX {
            if (self.leases.len() as u64) < self.settings().leases_max {
                return;
            }
            let Some(idle) = self.deadlines.longest_idle().cloned() else {
                return;
            };
            self.forget(&idle);
        }
    }

    /// Whether there is room for one more waiter.
    fn check_queue(&self, name: &LeaseName) -> Result<(), Rejection> {
        let max = self.settings().lease_waiters_max;
        let lease = self.leases.get(name);
        if lease.is_some_and(|lease| lease.waiters() >= max) {
            return Err(Rejection::Limit(Limit::LeaseWaiters(max)));
        }
        Ok(())
    }

    /// What keeps the lease from being granted to this session now, or to a new one.
    pub(crate) fn obstacle_now(
        &mut self,
        session: Option<SessionId>,
        name: &LeaseName,
    ) -> Option<Rejection> {
        let obstacle = self.obstacle(session, name);
        if let Some(Rejection::LockDelay { .. } | Rejection::Revoking { .. }) = obstacle {
            // Its time may be over, with a budget that ended before its deadline was looked at.
            self.lift_block(name);
            return self.obstacle(session, name);
        }
        obstacle
    }

    fn obstacle(&self, session: Option<SessionId>, name: &LeaseName) -> Option<Rejection> {
        let now = self.time();
        let lease = self.leases.get(name);
        if let Some(grant) = lease.and_then(|lease| lease.grant.as_deref()) {
            let holder = Holder {
                session: grant.session,
                identity: self.identity_of(grant.session),
                token: grant.token,
                data: grant.data.clone(),
            };
            let mine = Some(grant.session) == session;
            return Some(Rejection::Held { holder, mine });
        }
        if let Some(block) = lease.and_then(|lease| lease.blocked.as_deref()) {
            if block.revoked.is_some_and(|revoked| revoked.until > now) {
                let remaining = block.over().since(now);
                return Some(Rejection::Revoking { remaining });
            }
            let remaining = block.lock_delay_until.since(now);
            return Some(Rejection::LockDelay { remaining });
        }
        // Before the queue: in a quiet time the head waits for it as everyone else does.
        let remaining = self.header.quiet_until.since(now);
        if remaining.0 > 0 && !planted(Bug::QuietTimeIgnored) {
            return Some(Rejection::QuietTime { remaining });
        }
        let waiters = lease.map_or(0, |lease| lease.waiters());
        (waiters > 0).then_some(Rejection::Queued { waiters })
    }

    fn enqueue(&mut self, name: &LeaseName, waiter: Waiter) {
        // One counter for all queues, so that waits that end at one time end in the order of arrival.
        let place = self.state.header.next_place;
        self.state.header.next_place += 1;
        self.index_waiter(name, place, &waiter);
        // Quiet time keeps a lease from its queue without a block of its own, so it may want serving.
        self.change_or_make_lease(name, |lease| {
            lease.queue.insert(place, waiter);
        });
    }

    /// Notes a place in a queue wherever it is looked for besides the queue itself.
    pub(crate) fn index_waiter(&mut self, name: &LeaseName, place: u64, waiter: &Waiter) {
        self.state.waiters += 1;
        self.deadlines
            .insert_wait(waiter.until, place, name.clone());
        self.change_session(waiter.session, |session| {
            session.add_wait(Wait {
                number: waiter.request,
                name: name.clone(),
                place,
            });
        });
    }

    /// Grants a free lease; `None` if no token is left.
    pub(crate) fn grant(&mut self, name: &LeaseName, waiter: Waiter) -> Option<FencingToken> {
        let header = &mut self.state.header;
        // A token that is taken is spent, whatever becomes of the grant.
        let token = header.tokens.take()?;
        let grant = GrantRecord {
            token,
            session: waiter.session,
            request: waiter.request,
            data: waiter.data,
            lock_delay: waiter.lock_delay,
            index: header.index,
            since: header.wall,
        };
        let holder = self.change_session(grant.session, |holder| {
            holder.add_hold(name.clone(), token);
            (holder.identity.clone(), holder.ttl())
        });
        let (identity, ttl) = holder?;
        let granted = grant.granted(name, identity);
        self.events.push(Event::Granted(granted));
        self.state.held += 1;
        let grant = Box::new(grant);
        self.change_or_make_lease(name, |lease| {
            (lease.floor, lease.grant) = (Some(token), Some(grant));
        });
        self.object_granted(name, ttl);
        Some(token)
    }

    /// Grants free leases to the heads of their queues, as far as the budget goes.
    pub(crate) fn serve_queues(&mut self) {
        if self.header.quiet_until > self.header.time {
            return;
        }
        // A lease that is put back at the end is not looked at again by this entry.
        for _ in 0..self.unserved.len() {
            if !self.budget.serve() {
                return;
            }
            let Some((_, name)) = self.state.unserved.pop_first() else {
                return;
            };
            self.serve(name);
        }
    }

    fn serve(&mut self, name: LeaseName) {
        // It may be held again, or blocked: then it is no waiter's turn.
        let turn = self.leases.get(&name).is_some_and(Lease::wants_serving);
        if turn {
            self.refuse_heads(&name);
        }
        let Some(lease) = self.state.leases.get_mut(&name) else {
            return;
        };
        // Since it was put there its queue may have emptied, or a new block begun.
        lease.unserved = None;
        if !lease.wants_serving() {
            return;
        }
        let Some((&place, head)) = lease.queue.first() else {
            return;
        };
        let (session, until) = (head.session, head.until);
        let may_have =
            planted(Bug::RightsOfWaitersNotAsked) || self.check_waiter(session, &name).is_ok();
        if until > self.time() && self.alive(session).is_some() && may_have {
            self.grant_to_waiter(&name, place);
        } else if let Some(lease) = self.state.leases.get_mut(&name) {
            // The budget ended before its turn to end came; it must not be granted any more.
            lease.unserved = NonZeroU64::new(self.state.unserved.push(name));
        }
    }

    /// Grants a free lease to a place in its queue.
    pub(crate) fn grant_to_waiter(&mut self, name: &LeaseName, place: u64) -> Option<FencingToken> {
        // The grant follows: meanwhile the lease is not idle, nor does it want to be served.
        let waiter = self.state.leases.get_mut(name)?.queue.remove(&place)?;
        self.state.waiters -= 1;
        self.deadlines
            .remove_wait(waiter.until, place, name.clone());
        let (id, request) = (waiter.session, waiter.request);
        self.change_session(id, |session| session.remove_wait(request))?;
        let token = self.grant(name, waiter);
        let answer = match token {
            Some(token) => Answer::Granted {
                name: name.clone(),
                token,
            },
            None => Answer::Refused(Rejection::TokensExhausted),
        };
        let session = self.state.sessions.get_mut(&id)?;
        session.requests.settle(request, answer);
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
