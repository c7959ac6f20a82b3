//! A state from records.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use crate::lease::{Lease, Waiter};
use crate::level::{LEVEL_FIRST, LEVEL_REPEATS};
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::requests::Requests;
use crate::session::{EndedSession, Session, Wait};
use crate::snapshot::{
    BadSnapshot, EndedRecord, Header, LeaseRecord, Record, SessionRecord, WaiterRecord,
};
use crate::time::Millis;

impl StateMachine {
    /// The state that these records describe.
    ///
    /// # Errors
    /// [`BadSnapshot`] if they contradict each other or are out of order.
    pub fn restore(records: impl IntoIterator<Item = Record>) -> Result<Self, BadSnapshot> {
        let mut records = records.into_iter();
        let Some(Record::Header(header)) = records.next() else {
            return Err(BadSnapshot {
                record: 0,
                why: "is not a header",
            });
        };
        let mut machine = Self::from_header(&header);
        for (at, record) in (1..).zip(records) {
            let restored = match record {
                Record::Header(_) => Err("is a second header"),
                Record::Session(session) => machine.restore_session(session),
                Record::Lease(lease) => machine.restore_lease(lease),
                Record::Ended(ended) => machine.restore_ended(ended),
            };
            restored.map_err(|why| BadSnapshot { record: at, why })?;
        }
        for name in header.unserved {
            let lease = machine.leases.get_mut(&name);
            let lease = lease.filter(|lease| lease.unserved.is_none());
            let why = "names an unserved lease twice or one that is not there";
            let lease = lease.ok_or(BadSnapshot { record: 0, why })?;
            lease.unserved = NonZeroU64::new(machine.unserved.push(name));
        }
        Ok(machine)
    }

    fn from_header(header: &Header) -> Self {
        Self {
            cluster: header.cluster,
            level: header.level.max(LEVEL_FIRST),
            token_floor: header.token_floor,
            settings: header.settings,
            settings_set_at: header.settings_set_at,
            index: header.index,
            term: header.term,
            term_start: header.term_start,
            time: header.time,
            wall: header.wall,
            counter: header.counter,
            last_token: header.last_token,
            next_session: header.next_session,
            next_place: header.next_place,
            forgotten: header.forgotten,
            quiet_until: header.quiet_until,
            ..Self::new()
        }
    }

    fn restore_session(&mut self, record: SessionRecord) -> Result<(), &'static str> {
        let id = record.id;
        if self.sessions.get(id).is_some() || id.get() >= self.next_session {
            return Err("is a session whose number is taken or was never given out");
        }
        if self.opens.insert(record.open, id).is_some() {
            return Err("repeats the id of an Open");
        }
        let requests = Requests::restore(record.lowest, record.answers);
        let open = (record.open, record.secret);
        let mut session = Session::new(open, record.identity, record.ttl, record.seen);
        session.armed = record.armed;
        session.requests = requests.ok_or("remembers answers out of order or out of its window")?;
        for lost in record.lost {
            session.add_lost(lost);
        }
        if record.pod.is_some() != (record.ttl == Millis::FOREVER) {
            return Err("has both a TTL and a Pod, or neither");
        }
        if let Some(pod) = record.pod {
            if self.pods.insert(pod.key(), id).is_some() {
                return Err("is bound to a container that another session is bound to");
            }
            session.bind(pod);
        }
        if session.armed > session.deadline(self.term_start) {
            return Err("would be looked at after its deadline");
        }
        if session.pod().is_none() {
            self.deadlines.insert_session(record.armed, id);
            self.ttls.insert(session.ttl);
        }
        self.sessions.insert(id, session);
        Ok(())
    }

    fn restore_lease(&mut self, record: LeaseRecord) -> Result<(), &'static str> {
        let LeaseRecord {
            name,
            floor,
            grant,
            blocked,
            idle_since,
            armed,
            revoked,
            queue,
        } = record;
        if self.leases.get(&name).is_some() {
            return Err("repeats a lease");
        }
        if let Some(grant) = &grant {
            if floor != Some(grant.token) || grant.token.get() > self.counter {
                return Err("has a grant whose token is not its floor or was never given out");
            }
            let holder = self
                .sessions
                .get_mut(grant.session)
                .ok_or("is held by no living session")?;
            holder.requests.share_name(grant.request, &name);
            holder.add_hold(name.clone(), grant.token);
            self.held += 1;
        }
        let mut lease = Lease {
            floor,
            grant: grant.map(Box::new),
            blocked: blocked.map(Box::new),
            idle_since,
            revoked,
            ..Lease::default()
        };
        if !queue.is_sorted_by(|one, next| one.place < next.place) {
            return Err("has a queue out of order");
        }
        for waiter in queue {
            self.restore_waiter(&name, &mut lease, waiter)?;
        }
        self.deadlines.move_lease(&name, None, lease.due());
        if let Some(at) = armed
            && !self.is_at(LEVEL_REPEATS)
        {
            self.deadlines.looks.look(&name, at);
        }
        self.leases.insert(name, lease);
        Ok(())
    }

    fn restore_waiter(
        &mut self,
        name: &LeaseName,
        lease: &mut Lease,
        record: WaiterRecord,
    ) -> Result<(), &'static str> {
        let WaiterRecord {
            place,
            session,
            request,
            until,
            data,
            lock_delay,
        } = record;
        if place >= self.next_place {
            return Err("has a queue out of order");
        }
        let waiting = self
            .sessions
            .get_mut(session)
            .ok_or("is waited for by no living session")?;
        waiting.requests.share_name(request, name);
        waiting.add_wait(Wait {
            number: request,
            name: name.clone(),
            place,
        });
        lease.queue.insert(
            place,
            Waiter {
                session,
                request,
                until,
                data,
                lock_delay,
            },
        );
        self.deadlines.insert_wait(until, place, name.clone());
        self.waiters += 1;
        Ok(())
    }

    fn restore_ended(&mut self, record: EndedRecord) -> Result<(), &'static str> {
        let EndedRecord {
            session,
            open,
            secret,
            cause,
            at,
            release,
        } = record;
        if self.sessions.get(session).is_some() || self.ended.get(session).is_some() {
            return Err("is an ended session whose number is taken");
        }
        if self.opens.insert(open, session).is_some() {
            return Err("repeats the id of an Open");
        }
        self.ended.push(
            session,
            EndedSession {
                open,
                secret,
                cause,
                at,
                release,
            },
        );
        Ok(())
    }
}
