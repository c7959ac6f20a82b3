//! What time does: sessions, waits, blocks and memories end when their time has come; then the
//! queues of free leases are served.

use ringfence_core::{ClusterTime, Event, Millis, OPEN_AGE_MAX, SessionEnd, SessionId, WaitEnd};

use super::{Lease, Model, Rest, Session};

/// Something whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Session(SessionId),
    /// A place, and the lease in whose queue it is.
    Wait(u64, usize),
    /// A lease whose block is over.
    Block(usize),
    /// Since when a lease has been idle, and which.
    Idle(ClusterTime, usize),
    /// A lease that is looked at, see [`Lease::look_at`].
    Look(usize),
}

impl Session {
    /// When it ends unless it is kept alive.
    pub(super) fn deadline(&self, term_start: ClusterTime) -> ClusterTime {
        let fresh = term_start.min(self.seen.after(self.ttl));
        self.seen.max(fresh).after(self.ttl)
    }
}

impl Lease {
    /// Until when no session is granted it although none holds it.
    pub(super) fn blocked_until(&self) -> Option<ClusterTime> {
        self.lock_delay_until
            .max(self.unaware.map(|holder| holder.until))
    }

    /// Whether no session has it, wants it or may still believe in it.
    pub(super) fn is_idle(&self) -> bool {
        self.grant.is_none() && self.queue.is_empty() && self.blocked_until().is_none()
    }

    fn rest(&self) -> Option<Rest> {
        match self.blocked_until() {
            Some(until) => Some(Rest::Blocked(until)),
            None => self.is_idle().then_some(Rest::Idle(self.idle_since)),
        }
    }

    fn wants_serving(&self) -> bool {
        self.grant.is_none() && self.blocked_until().is_none() && !self.queue.is_empty()
    }
}

impl Rest {
    fn over(self, retention: Millis) -> ClusterTime {
        match self {
            Self::Blocked(until) => until,
            Self::Idle(since) => since.after(retention),
        }
    }
}

impl Model {
    /// Ends everything that is due, in the order of the deadlines.
    pub(super) fn end_due(&mut self) {
        while let Some(due) = self.first_due() {
            match due {
                Due::Session(id) => self.end_session(id, &SessionEnd::Expired),
                Due::Wait(place, lease) => self.time_out(lease, place),
                Due::Block(lease) => self.unblock_if_over(lease),
                Due::Idle(_, lease) => self.forget(lease),
                Due::Look(lease) => self.look(lease),
            }
            self.line_up();
        }
        let now = self.time;
        self.ended
            .retain(|ended| ended.at.after(OPEN_AGE_MAX) > now);
    }

    fn first_due(&self) -> Option<Due> {
        let mut due = Vec::new();
        for session in self.sessions.iter().filter(|one| one.pod.is_none()) {
            due.push((session.deadline(self.term_start), Due::Session(session.id)));
        }
        for (at, lease) in self.leases.iter().enumerate() {
            for waiter in &lease.queue {
                due.push((waiter.until, Due::Wait(waiter.place, at)));
            }
            if !self.knows_repeats() {
                due.extend(lease.look_at.map(|look_at| (look_at, Due::Look(at))));
                continue;
            }
            due.extend(lease.rest().map(|rest| {
                let what = match rest {
                    Rest::Blocked(_) => Due::Block(at),
                    Rest::Idle(since) => Due::Idle(since, at),
                };
                (rest.over(self.settings.idle_retention), what)
            }));
        }
        due.retain(|(deadline, _)| *deadline <= self.time);
        // No session waits for a name to be forgotten: that comes last.
        let key =
            |(deadline, due): &(ClusterTime, Due)| (matches!(due, Due::Idle(..)), *deadline, *due);
        due.into_iter().min_by_key(key).map(|(_, due)| due)
    }

    /// Looks whether the block or the idle time of a lease is over, and when it is not, looks again.
    fn look(&mut self, at: usize) {
        let retention = self.settings.idle_retention;
        let lease = &mut self.leases[at];
        let look_at = lease.look_at.take();
        let over = lease.rest().map(|rest| rest.over(retention));
        if over > look_at {
            lease.look_at = over;
        } else if lease.is_idle() {
            self.forget(at);
        } else if over.is_some() {
            self.unblock_if_over(at);
        }
    }

    /// Forgets a name that no session uses.
    pub(super) fn forget(&mut self, lease: usize) {
        let Lease { name, floor, .. } = self.leases.remove(lease);
        if let Some(floor) = floor {
            self.forgotten = self.forgotten.max(Some(floor));
            self.events.push(Event::Forgotten { name, floor });
        }
    }

    fn time_out(&mut self, lease: usize, place: u64) {
        let at = self.leases[lease]
            .queue
            .iter()
            .position(|waiter| waiter.place == place)
            .expect("found a moment ago");
        let waiter = self.leases[lease].queue.remove(at);
        self.left_queue(lease, &waiter, WaitEnd::TimedOut);
    }

    /// Takes a lease's block away if its time is over; only then it begins to be idle.
    pub(super) fn unblock_if_over(&mut self, at: usize) {
        let now = self.time;
        let lease = &mut self.leases[at];
        if lease.blocked_until().is_none_or(|until| until <= now) {
            lease.lock_delay_until = None;
            lease.unaware = None;
            lease.idle_since = now;
        }
    }

    /// Gives each free lease that a session waits for its turn, in the order in which they came to
    /// be so, and each that came to be blocked or idle the time at which it is looked at. To be called
    /// after each change, so that there is an order.
    pub(super) fn line_up(&mut self) {
        for lease in &mut self.leases {
            let rest = lease.rest();
            if rest != lease.rest {
                lease.rest = rest;
                let over = rest.map(|rest| rest.over(self.settings.idle_retention));
                lease.look_at = lease.look_at.into_iter().chain(over).min();
            }
            if lease.wants_serving() && lease.turn.is_none() {
                lease.turn = Some(self.next_turn);
                self.next_turn += 1;
            }
        }
    }

    /// Grants free leases to the heads of their queues.
    pub(super) fn serve(&mut self) {
        self.line_up();
        if self.time < self.quiet_until {
            return;
        }
        let mut turns: Vec<(u64, usize)> = Vec::new();
        for (at, lease) in self.leases.iter_mut().enumerate() {
            turns.extend(lease.turn.take().map(|turn| (turn, at)));
        }
        turns.sort_unstable();
        for (_, at) in turns {
            if self.leases[at].wants_serving() {
                self.refuse_heads(at);
            }
            if self.leases[at].wants_serving() {
                let waiter = self.leases[at].queue.remove(0);
                self.grant_to_waiter(at, waiter);
            }
        }
    }
}
