//! A state from records.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use crate::access::Access;
use crate::access::usage::Kept;
use crate::audit::Audit;
use crate::ended::EndedRecord;
use crate::lease::{Lease, Waiter};
use crate::level::{LEVEL_FIRST, LEVEL_REPEATS};
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::requests::Requests;
use crate::session::Session;
use crate::settings::LINEAGE_MAX;
use crate::snapshot::{
    BadSnapshot, LeaseRecord, ObjectRecord, Record, SessionRecord, WaiterRecord,
};
use crate::time::Millis;

impl StateMachine {
    /// The state that these records describe.
    ///
    /// # Errors
    /// [`BadSnapshot`] if they contradict each other or are out of order.
    pub fn restore(records: impl IntoIterator<Item = Record>) -> Result<Self, BadSnapshot> {
        let mut records = records.into_iter();
        let Some(Record::Header(mut header)) = records.next() else {
            return Err(BadSnapshot {
                record: 0,
                why: "is not a header",
            });
        };
        let seeding = header.seeding.as_ref();
        if header.lineage.len() > LINEAGE_MAX
            || seeding.is_some_and(|seeding| seeding.done >= seeding.parts)
        {
            return Err(BadSnapshot {
                record: 0,
                why: "names too many clusters, or lacks parts of a state that has them all",
            });
        }
        let unserved = core::mem::take(&mut header.unserved);
        header.level = header.level.max(LEVEL_FIRST);
        let audit = Audit::restored(core::mem::take(&mut header.audit_dropped));
        let mut machine = Self::from_header(header);
        machine.state.audit = audit;
        let mut access = Vec::new();
        for (at, record) in (1..).zip(records) {
            let restored = match record {
                Record::Header(_) => Err("is a second header"),
                Record::Session(session) => machine.restore_session(session),
                Record::Lease(lease) => machine.restore_lease(lease),
                Record::Ended(ended) => machine.restore_ended(ended),
                Record::Audit(act) => {
                    machine.state.audit.add(act);
                    machine.state.audit.drop_oldest();
                    Ok(())
                }
                Record::Object(object) => machine.restore_object(object),
                Record::GoneObject(gone) => {
                    let versions = machine.header.versions;
                    machine.state.objects.restore_gone(gone, versions)
                }
                Record::Owing(owing) => {
                    let versions = machine.header.versions;
                    machine.state.objects.restore_owing(owing, versions)
                }
                Record::Access(part) => {
                    access.push(part);
                    Ok(())
                }
            };
            restored.map_err(|why| BadSnapshot { record: at, why })?;
        }
        let access = Access::restore(access);
        machine.state.access = access.map_err(|why| BadSnapshot { record: 0, why })?;
        // Last, since each lease keeps its place in the list, and the order of the list is the order
        // in which queues are served.
        for name in unserved {
            let lease = machine.state.leases.get_mut(&name);
            let lease = lease.filter(|lease| lease.unserved.is_none());
            let why = "names an unserved lease twice or one that is not there";
            let lease = lease.ok_or(BadSnapshot { record: 0, why })?;
            lease.unserved = NonZeroU64::new(machine.state.unserved.push(name));
        }
        Ok(machine)
    }

    fn restore_session(&mut self, record: SessionRecord) -> Result<(), &'static str> {
        let id = record.id;
        if self.sessions.get(&id).is_some() || !self.has_opened(id) {
            return Err("is a session whose number is taken or was never given out");
        }
        if self.opens.contains_key(&record.open) {
            return Err("repeats the id of an Open");
        }
        let requests = Requests::restore(record.lowest, record.answers);
        let open = (record.open, record.secret);
        let mut session = Session::new(open, record.identity, record.ttl, record.seen);
        session.owner = record.owner;
        session.armed = record.armed;
        session.requests = requests.ok_or("remembers answers out of order or out of its window")?;
        for lost in record.lost {
            session.add_lost(lost);
        }
        if record.pod.is_some() != (record.ttl == Millis::FOREVER) {
            return Err("has both a TTL and a Pod, or neither");
        }
        if let Some(pod) = record.pod {
            if self.pods.get(&pod.key()).is_some() {
                return Err("is bound to a container that another session is bound to");
            }
            session.bind(pod);
        }
        if session.armed > session.deadline(self.header.term_start) {
            return Err("would be looked at after its deadline");
        }
        self.add_session(id, session);
        Ok(())
    }

    fn restore_lease(&mut self, record: LeaseRecord) -> Result<(), &'static str> {
        let name = record.name;
        if self.leases.get(&name).is_some() {
            return Err("repeats a lease");
        }
        if let Some(grant) = &record.grant {
            if record.floor != Some(grant.token) || grant.token.get() > self.token_counter() {
                return Err("has a grant whose token is not its floor or was never given out");
            }
            let held = self.change_session(grant.session, |holder| {
                // What was decoded has a copy of the name in each record; a machine has one for all.
                holder.requests.share_name(grant.request, &name);
                holder.add_hold(name.clone(), grant.token);
            });
            held.ok_or("is held by no living session")?;
            self.state.held += 1;
        }
        let mut lease = Lease {
            floor: record.floor,
            grant: record.grant.map(Box::new),
            blocked: record.blocked.map(Box::new),
            idle_since: record.idle_since,
            revoked: record.revoked,
            ..Lease::default()
        };
        if !record
            .queue
            .is_sorted_by(|one, next| one.place < next.place)
        {
            return Err("has a queue out of order");
        }
        for waiter in record.queue {
            self.restore_waiter(&name, &mut lease, waiter)?;
        }
        self.deadlines.move_lease(&name, None, lease.due());
        if let Some(of) = record.kept_for {
            let due = lease.due();
            let due = due.ok_or("is kept for a principal although it is a session's")?;
            let lost = record.kept_lost;
            let waits = false;
            let kept = Kept { of, lost, waits };
            self.usages.keep(&kept, &name, due);
            self.state.kept.insert(name.clone(), kept);
        }
        if let Some(at) = record.armed
            && !self.is_at(LEVEL_REPEATS)
        {
            self.state.looks.look(&name, at);
        }
        self.state.leases.insert(name.clone(), lease);
        self.count_wait(&name);
        Ok(())
    }

    fn restore_waiter(
        &mut self,
        name: &LeaseName,
        lease: &mut Lease,
        record: WaiterRecord,
    ) -> Result<(), &'static str> {
        let place = record.place;
        if place >= self.header.next_place {
            return Err("has a queue out of order");
        }
        let waiting = self.state.sessions.get_mut(&record.session);
        let waiting = waiting.ok_or("is waited for by no living session")?;
        waiting.requests.share_name(record.request, name);
        let waiter = Waiter {
            session: record.session,
            request: record.request,
            until: record.until,
            data: record.data,
            lock_delay: record.lock_delay,
        };
        self.index_waiter(name, place, &waiter);
        lease.queue.insert(place, waiter);
        Ok(())
    }

    fn restore_object(&mut self, record: ObjectRecord) -> Result<(), &'static str> {
        let ObjectRecord { name, object } = record;
        if object.version > self.header.versions || object.created > object.version {
            return Err("is an object whose version was never given out");
        }
        let objects = &self.state.objects;
        if objects.get(&name).is_some() || objects.has_change(object.version) {
            return Err("repeats an object, or the version of one");
        }
        if let Some(term) = &object.term {
            let grant = self.grant_of(&name);
            let held = grant
                .is_some_and(|grant| (grant.token, grant.session) == (term.token, term.session));
            if !held {
                return Err("is an object with a term that holds nothing");
            }
        }
        self.put_object(&name, object);
        Ok(())
    }

    fn restore_ended(&mut self, record: EndedRecord) -> Result<(), &'static str> {
        let id = record.session;
        if self.sessions.get(&id).is_some() || self.ended.get(id).is_some() {
            return Err("is an ended session whose number is taken");
        }
        if self.opens.insert(record.open, id).is_some() {
            return Err("repeats the id of an Open");
        }
        self.usages
            .change(record.owner.as_ref(), |counts| counts.sessions += 1);
        self.state.ended.push(record);
        Ok(())
    }
}
