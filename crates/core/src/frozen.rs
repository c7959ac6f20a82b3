//! A state held fast, so that it can be read out while the machine goes on.

use alloc::vec::Vec;
use core::iter;

use ringfence_planted::{Bug, planted};

use crate::id::SessionId;
use crate::lease::Lease;
use crate::line::Line;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::session::{EndedSession, Session, Sessions};
use crate::snapshot::{Header, LeaseRecord, Record, SessionRecord, WaiterRecord};
use crate::tree::Tree;

/// The whole state as it was at one index, whatever is applied to the machine afterwards.
///
/// It shares with the machine what has not changed since. What it takes to make one does not
/// depend on how much there is; its memory grows, at most to the size of the state, with what the
/// machine changes while it is kept.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// But for the unserved leases.
    header: Header,
    unserved: Line<LeaseName>,
    sessions: Sessions,
    leases: Tree<LeaseName, Lease>,
    ended: Line<(SessionId, EndedSession)>,
}

impl Frozen {
    /// The newest entry that it knows of.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.header.index
    }

    /// The state as records, see [`StateMachine::records`].
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let header = with_unserved(self.header.clone(), &self.unserved);
        records(header, &self.sessions, &self.leases, &self.ended)
    }
}

impl StateMachine {
    /// The whole state: a header, then sessions, leases and ended sessions. Equal states have
    /// equal records.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let header = with_unserved(self.header(), &self.unserved);
        records(header, &self.sessions, &self.leases, self.ended.order())
    }

    /// The state as it is now, to be read while entries are applied. It takes microseconds, however
    /// much there is.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        Frozen {
            header: self.header(),
            unserved: self.unserved.clone(),
            sessions: self.sessions.clone(),
            leases: self.leases.clone(),
            ended: self.ended.order().clone(),
        }
    }

    /// The header but for the unserved leases.
    fn header(&self) -> Header {
        Header {
            cluster: self.cluster,
            token_floor: self.token_floor,
            settings: self.settings,
            settings_set_at: self.settings_set_at,
            index: self.index,
            term: self.term,
            term_start: self.term_start,
            time: self.time,
            wall: self.wall,
            counter: if planted(Bug::CounterLostInSnapshot) {
                self.last_token
            } else {
                self.counter
            },
            last_token: self.last_token,
            next_session: self.next_session,
            next_place: self.next_place,
            forgotten: self.forgotten,
            quiet_until: self.quiet_until,
            unserved: Vec::new(),
        }
    }
}

fn with_unserved(header: Header, unserved: &Line<LeaseName>) -> Header {
    let mut unserved: Vec<LeaseName> = unserved.iter().cloned().collect();
    if planted(Bug::QueueOrderLostInSnapshot) {
        unserved.sort();
    }
    Header { unserved, ..header }
}

fn records<'a>(
    header: Header,
    sessions: &'a Sessions,
    leases: &'a Tree<LeaseName, Lease>,
    ended: &'a Line<(SessionId, EndedSession)>,
) -> impl Iterator<Item = Record> + 'a {
    let sessions = sessions.iter(None);
    let leases = leases.iter();
    let ended = ended.iter();
    iter::once(Record::Header(header))
        .chain(sessions.map(|(id, session)| Record::Session(session_record(id, session))))
        .chain(leases.map(|(name, lease)| Record::Lease(lease_record(name, lease))))
        .chain(ended.map(|(id, ended)| Record::Ended(ended.record(*id))))
}

fn session_record(id: SessionId, session: &Session) -> SessionRecord {
    SessionRecord {
        id,
        open: session.open,
        secret: session.secret,
        identity: session.identity.clone(),
        ttl: session.ttl,
        seen: session.seen,
        armed: session.armed,
        lowest: session.requests.lowest(),
        answers: if planted(Bug::AnswersLostInSnapshot) {
            Vec::new()
        } else {
            session.requests.records()
        },
        lost: session.lost().to_vec(),
        pod: session.pod().cloned(),
    }
}

fn lease_record(name: &LeaseName, lease: &Lease) -> LeaseRecord {
    let queue = lease.queue.iter().map(|(&place, waiter)| WaiterRecord {
        place,
        session: waiter.session,
        request: waiter.request,
        until: waiter.until,
        data: waiter.data.clone(),
        lock_delay: waiter.lock_delay,
    });
    LeaseRecord {
        name: name.clone(),
        floor: lease.floor,
        grant: lease.grant.as_deref().cloned(),
        blocked: lease.blocked.as_deref().cloned(),
        idle_since: lease.idle_since,
        armed: lease.armed(),
        queue: queue.collect(),
    }
}
