//! Grants: how they begin and how they end.

use ringfence_core::snapshot::{Answer, GrantRecord, RevokedHolder, WaiterRecord};
use ringfence_core::{
    Acquire, EndCause, Event, FencingToken, Granted, Holder, LOCK_DELAY_MAX, LeaseName, Limit,
    LostGrant, Mode, Rejection, RequestNumber, SessionId, WAIT_MAX, WaitEnd,
};

use super::rights::named;
use super::{Lease, Model};

impl Model {
    pub(super) fn lease_at(&self, name: &LeaseName) -> Option<usize> {
        self.leases.iter().position(|lease| lease.name == *name)
    }

    pub(super) fn token_left(&self) -> bool {
        self.counter < FencingToken::MAX
    }

    /// Answers an acquire that was not answered before.
    pub(super) fn acquire(
        &mut self,
        session: SessionId,
        request: RequestNumber,
        ask: &Acquire,
    ) -> Answer {
        match self.try_acquire(session, request, ask) {
            Ok(answer) => answer,
            Err(refused) => Answer::Refused(refused),
        }
    }

    fn try_acquire(
        &mut self,
        session: SessionId,
        request: RequestNumber,
        ask: &Acquire,
    ) -> Result<Answer, Rejection> {
        if let Some(offered) = ask.wait.filter(|&wait| wait > WAIT_MAX) {
            return Err(Rejection::InvalidWait { offered });
        }
        if ask.lock_delay > LOCK_DELAY_MAX {
            let offered = ask.lock_delay;
            return Err(Rejection::InvalidLockDelay { offered });
        }
        self.may_acquire(session, &ask.name)?;
        let obstacle = self.obstacle(Some(session), &ask.name);
        if let Some(obstacle) = &obstacle {
            let mine = matches!(obstacle, Rejection::Held { mine: true, .. });
            if mine || ask.wait.is_none() {
                return Err(obstacle.clone());
            }
        }
        self.check_limits(session, &ask.name, obstacle.is_some())?;
        if obstacle.is_none() && !self.token_left() {
            return Err(Rejection::TokensExhausted);
        }
        self.forget_own_for(session, &ask.name);
        let at = self.lease_or_new(&ask.name);
        let waiter = WaiterRecord {
            place: self.next_place,
            session,
            request,
            until: self.time.after(ask.wait.unwrap_or_default()),
            data: ask.data.clone(),
            lock_delay: ask.lock_delay,
        };
        if obstacle.is_some() {
            self.next_place += 1;
            self.leases[at].queue.push(waiter);
            return Ok(Answer::Waiting {
                name: ask.name.clone(),
            });
        }
        let token = self.grant_to_waiter(at, waiter).token;
        let name = ask.name.clone();
        Ok(Answer::Granted { name, token })
    }

    /// Why the lease cannot be granted at once to a session that is still to be opened.
    pub(super) fn obstacle_of_new(&self, name: &LeaseName) -> Option<Rejection> {
        self.obstacle(None, name)
    }

    /// Why the lease cannot be granted at once.
    fn obstacle(&self, session: Option<SessionId>, name: &LeaseName) -> Option<Rejection> {
        let lease = self.lease_at(name).map(|at| &self.leases[at]);
        if let Some(grant) = lease.and_then(|lease| lease.grant.as_ref()) {
            let holder = Holder {
                session: grant.session,
                identity: self.session(grant.session)?.identity.clone(),
                token: grant.token,
                data: grant.data.clone(),
            };
            let mine = Some(grant.session) == session;
            return Some(Rejection::Held { holder, mine });
        }
        if let Some(block) = lease.and_then(|lease| self.block(lease)) {
            return Some(block);
        }
        if self.time < self.quiet_until {
            let remaining = self.quiet_until.since(self.time);
            return Some(Rejection::QuietTime { remaining });
        }
        let waiters = lease.map_or(0, |lease| lease.queue.len());
        let waiters = u32::try_from(waiters).unwrap_or(u32::MAX);
        (waiters > 0).then_some(Rejection::Queued { waiters })
    }

    /// What keeps a free lease from anybody.
    fn block(&self, lease: &Lease) -> Option<Rejection> {
        let remaining = lease.blocked_until()?.since(self.time);
        let unaware = lease.unaware.filter(|holder| holder.until > self.time);
        Some(match unaware {
            Some(_) => Rejection::Revoking { remaining },
            None => Rejection::LockDelay { remaining },
        })
    }

    fn check_limits(
        &self,
        session: SessionId,
        name: &LeaseName,
        to_wait: bool,
    ) -> Result<(), Rejection> {
        let lease = self.lease_at(name).map(|at| &self.leases[at]);
        let limits = &self.settings;
        if self.leases_of(session) >= limits.session_leases_max as usize {
            return Err(Rejection::Limit(Limit::SessionLeases(
                limits.session_leases_max,
            )));
        }
        self.has_room(session, name)?;
        let full = self.leases.len() as u64 >= limits.leases_max;
        let makes_room = self.knows_repeats() && self.longest_idle().is_some();
        if lease.is_none() && full && !makes_room {
            return Err(Rejection::Limit(Limit::Leases(limits.leases_max)));
        }
        let waiters = lease.map_or(0, |lease| lease.queue.len());
        if to_wait && waiters >= limits.lease_waiters_max as usize {
            return Err(Rejection::Limit(Limit::LeaseWaiters(
                limits.lease_waiters_max,
            )));
        }
        Ok(())
    }

    /// Leases and waits of a session, and losses that it has not acknowledged.
    pub(super) fn leases_of(&self, session: SessionId) -> usize {
        let mut count = self.session(session).map_or(0, |found| found.lost.len());
        for lease in &self.leases {
            count += usize::from(
                lease
                    .grant
                    .as_ref()
                    .is_some_and(|grant| grant.session == session),
            );
            count += lease
                .queue
                .iter()
                .filter(|waiter| waiter.session == session)
                .count();
        }
        count
    }

    /// Notes whose session gave up a lease.
    fn used_last_by(&mut self, at: usize, session: SessionId) {
        let owner = self.session(session).and_then(|found| found.owner.clone());
        let owner = match self.rights.mode {
            Mode::Enforced => Some(named(owner.as_ref())),
            Mode::Off | Mode::Permissive => owner,
        };
        self.leases[at].last_of = owner.filter(|_| self.counts_idle_names());
        self.leases[at].loss_counts = false;
    }

    /// The loss of a lease counts no more for its session.
    pub(super) fn loss_counts_no_more(&mut self, lost: &LostGrant) {
        let at = self.lease_at(&lost.name);
        if let Some(at) = at.filter(|&at| self.leases[at].floor == Some(lost.token)) {
            self.leases[at].loss_counts = false;
        }
    }

    /// The lease that no session has used for the longest time.
    pub(super) fn longest_idle(&self) -> Option<usize> {
        let leases = self.leases.iter().enumerate();
        let idle = leases.filter(|(_, lease)| lease.is_idle());
        let first = idle.min_by_key(|(_, lease)| (lease.idle_since, &lease.name));
        first.map(|(at, _)| at)
    }

    /// The lease of this name. A new name displaces idle ones if there are too many: two, so that the
    /// names become fewer after the limit was lowered.
    pub(super) fn lease_or_new(&mut self, name: &LeaseName) -> usize {
        if let Some(at) = self.lease_at(name) {
            return at;
        }
        for _ in 0..2 {
            if self.leases.len() as u64 >= self.settings.leases_max
                && let Some(idle) = self.longest_idle()
            {
                self.forget(idle);
            }
        }
        self.leases.push(Lease {
            name: name.clone(),
            floor: None,
            grant: None,
            lock_delay_until: None,
            unaware: None,
            idle_since: self.time,
            rest: None,
            look_at: None,
            revoked: None,
            last_of: None,
            loss_counts: false,
            queue: Vec::new(),
            turn: None,
        });
        self.leases.sort_by(|a, b| a.name.cmp(&b.name));
        self.lease_at(name).expect("just put there")
    }

    /// Grants a free lease to a session that stood in its queue, or could have.
    pub(super) fn grant_to_waiter(&mut self, at: usize, waiter: WaiterRecord) -> Granted {
        self.counter += 1;
        let token = FencingToken::new(self.counter).expect("checked before");
        let name = self.leases[at].name.clone();
        let identity = self.session(waiter.session).expect("alive");
        let granted = Granted {
            name: name.clone(),
            token,
            session: waiter.session,
            identity: identity.identity.clone(),
            data: waiter.data.clone(),
            request: waiter.request,
            index: self.index,
            since: self.wall,
        };
        self.leases[at].floor = Some(token);
        self.leases[at].grant = Some(GrantRecord {
            token,
            session: waiter.session,
            request: waiter.request,
            data: waiter.data,
            lock_delay: waiter.lock_delay,
            index: self.index,
            since: self.wall,
        });
        self.reanswer(
            waiter.session,
            waiter.request,
            Answer::Granted {
                name: name.clone(),
                token,
            },
        );
        self.events.push(Event::Granted(granted.clone()));
        let ttl = self.session(waiter.session).expect("alive").ttl;
        self.object_granted(&name, ttl);
        granted
    }

    /// Ends the grant in force of a lease.
    pub(super) fn end_grant(&mut self, at: usize, cause: &EndCause) {
        let grant = self.leases[at].grant.take().expect("in force");
        let name = self.leases[at].name.clone();
        let identity = self.session(grant.session).expect("alive").identity.clone();
        let (token, session) = (grant.token, grant.session);
        self.used_last_by(at, session);
        self.reanswer(
            session,
            grant.request,
            Answer::Ended {
                name: name.clone(),
                token,
                cause: cause.clone(),
            },
        );
        let dirty = matches!(
            cause,
            EndCause::Expired
                | EndCause::Revoked { .. }
                | EndCause::Evicted { .. }
                | EndCause::PodEnded { .. }
        );
        if self.knows_repeats() && matches!(cause, EndCause::Revoked { .. }) {
            self.leases[at].revoked = Some(token);
        }
        let until = self.time.after(grant.lock_delay);
        self.leases[at].lock_delay_until = (dirty && until > self.time).then_some(until);
        self.leases[at].idle_since = self.time;
        self.object_freed(&name, &identity, cause);
        self.events.push(Event::Ended {
            name,
            token,
            session,
            identity,
            cause: cause.clone(),
            at: self.wall,
        });
    }

    /// Keeps a free lease from others until its last holder cannot believe any more.
    pub(super) fn await_belief(&mut self, at: usize, session: SessionId, token: FencingToken) {
        let holder = self.session(session).expect("alive");
        let until = holder.seen.max(self.time).after(holder.ttl);
        let holder = RevokedHolder {
            session,
            token,
            until,
        };
        self.leases[at].unaware = (until > self.time).then_some(holder);
    }

    /// Tells what became of a waiter that was taken from the queue of a lease.
    pub(super) fn left_queue(&mut self, at: usize, waiter: &WaiterRecord, why: WaitEnd) {
        let name = self.leases[at].name.clone();
        let answer = match why {
            WaitEnd::TimedOut => Some(Answer::TimedOut { name: name.clone() }),
            WaitEnd::Cancelled | WaitEnd::SessionEnded => Some(Answer::Cancelled {
                name: Some(name.clone()),
            }),
            // Its answer says why.
            WaitEnd::Refused => None,
        };
        if let Some(answer) = answer {
            self.reanswer(waiter.session, waiter.request, answer);
        }
        let lease = &mut self.leases[at];
        if lease.grant.is_none() && lease.queue.is_empty() {
            lease.idle_since = self.time;
            if lease.blocked_until().is_none() {
                self.used_last_by(at, waiter.session);
            }
        }
        self.events.push(Event::WaitEnded {
            name,
            session: waiter.session,
            request: waiter.request,
            why,
        });
    }

    /// Refuses those at the head of a queue whose owners may not have the lease any more.
    pub(super) fn refuse_heads(&mut self, at: usize) {
        let name = self.leases[at].name.clone();
        while let Some(head) = self.leases[at].queue.first().cloned() {
            let Err(refused) = self.may_be_granted(head.session, &name) else {
                return;
            };
            self.leases[at].queue.remove(0);
            self.reanswer(head.session, head.request, Answer::Refused(refused));
            self.left_queue(at, &head, WaitEnd::Refused);
        }
    }

    /// The lease whose grant in force has this token.
    pub(super) fn in_force(
        &self,
        name: &LeaseName,
        offered: FencingToken,
    ) -> Result<usize, Rejection> {
        let at = self.lease_at(name);
        let grant = at.and_then(|at| self.leases[at].grant.as_ref());
        let current = grant.map(|grant| grant.token);
        match at {
            Some(at) if current == Some(offered) => Ok(at),
            _ => Err(Rejection::StaleToken {
                name: name.clone(),
                offered,
                current,
            }),
        }
    }
}
