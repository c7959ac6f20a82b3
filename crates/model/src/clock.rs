//! What time does: sessions, waits, blocks and memories end when their time has come; then the
//! queues of free leases are served.

use ringfence_core::{ClusterTime, Event, OPEN_AGE_MAX, SessionEnd, SessionId, WaitEnd};

use super::{Lease, Model, Session};

/// Something whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Session(SessionId),
    /// A place, and the lease in whose queue it is.
    Wait(u64, usize),
    /// A lease that is blocked, or idle.
    Lease(usize),
}

impl Session {
    /// When it ends unless it is kept alive.
    fn deadline(&self, term_start: ClusterTime) -> ClusterTime {
        let fresh = term_start.min(self.seen.after(self.ttl));
        self.seen.max(fresh).after(self.ttl)
    }
}

impl Lease {
    /// Until when nobody is granted it although nobody holds it.
    pub(super) fn blocked_until(&self) -> Option<ClusterTime> {
        self.lock_delay_until
            .max(self.unaware.map(|holder| holder.until))
    }

    fn wants_serving(&self) -> bool {
        self.grant.is_none() && self.blocked_until().is_none() && !self.queue.is_empty()
    }
}

impl Model {
    /// Ends everything that is due, in the order of the deadlines.
    pub(super) fn end_due(&mut self) {
        while let Some(due) = self.first_due() {
            match due {
                Due::Session(id) => self.end_session(id, &SessionEnd::Expired),
                Due::Wait(place, lease) => self.time_out(lease, place),
                Due::Lease(lease) if self.leases[lease].blocked_until().is_some() => {
                    self.unblock_if_over(lease);
                }
                Due::Lease(lease) => {
                    let Lease { name, floor, .. } = self.leases.remove(lease);
                    if let Some(floor) = floor {
                        self.forgotten = self.forgotten.max(Some(floor));
                        self.events.push(Event::Forgotten { name, floor });
                    }
                }
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
            if let Some(until) = lease.blocked_until() {
                due.push((until, Due::Lease(at)));
            } else if lease.grant.is_none() && lease.queue.is_empty() {
                let until = lease.idle_since.after(self.settings.idle_retention);
                due.push((until, Due::Lease(at)));
            }
        }
        due.retain(|(deadline, _)| *deadline <= self.time);
        due.into_iter().min().map(|(_, due)| due)
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

    /// Gives each free lease that somebody waits for its turn, in the order in which they came to
    /// be so. To be called after each change, so that there is an order.
    pub(super) fn line_up(&mut self) {
        for lease in &mut self.leases {
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
                let waiter = self.leases[at].queue.remove(0);
                self.grant_to_waiter(at, waiter);
            }
        }
    }
}
