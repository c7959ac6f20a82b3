//! A state held fast, so that it can be read out while the machine goes on.

use alloc::vec::Vec;
use core::iter;

use ringfence_planted::{Bug, planted};

use crate::id::{FencingToken, SessionId};
use crate::lease::Lease;
use crate::line::Line;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::pod::{Pod, PodKey};
use crate::query::{LeaseView, SessionView, Summary};
use crate::session::{EndedSession, Session, Sessions};
use crate::snapshot::{Header, LeaseRecord, Record, SessionRecord, WaiterRecord};
use crate::tables::Tables;
use crate::time::ClusterTime;
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
    /// When leases are looked at.
    looks: Tree<LeaseName, ClusterTime>,
    ended: Line<(SessionId, EndedSession)>,
    pods: Tree<PodKey, SessionId>,
    held: u64,
    waiters: u64,
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
        let leases = lease_records(&self.leases, &self.looks);
        records(header, &self.sessions, leases, &self.ended)
    }

    /// Figures about the whole.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let header = &self.header;
        Summary {
            time: header.time,
            sessions: self.sessions.len(),
            leases: self.leases.len() as u64,
            held: self.held,
            waiters: self.waiters,
            last_token: header.last_token,
            forgotten: header.forgotten,
            quiet: header.quiet_until.since(header.time),
            level: header.level,
        }
    }

    /// One lease; see [`StateMachine::get`].
    #[must_use]
    pub fn get(&self, name: &LeaseName) -> Option<LeaseView> {
        self.tables().lease(name)
    }

    /// Leases whose names begin with `prefix` and stand behind `after`, in the order of their
    /// names. The first one is found by a search; each further one takes constant time.
    pub fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = LeaseView> + 'a {
        self.tables().list(prefix, after)
    }

    /// How many leases whose names begin with `prefix` are held. Looks at each that begins with it.
    #[must_use]
    pub fn held(&self, prefix: &str) -> usize {
        self.tables().held(prefix)
    }

    /// The greatest token granted for each remembered name that begins with `prefix` and stands
    /// behind `after`, in the order of the names.
    pub fn floors<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (LeaseName, FencingToken)> + 'a {
        self.tables().floors(prefix, after)
    }

    /// One session with its leases; `None` if it is not alive.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<SessionView> {
        self.tables().session(id)
    }

    /// Sessions behind `after` in the order of their numbers, without their leases.
    pub fn sessions(&self, after: Option<SessionId>) -> impl Iterator<Item = SessionView> + '_ {
        self.tables().sessions(after)
    }

    /// The Pods that living sessions are bound to, in the order of their UIDs.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.tables().pods()
    }

    fn tables(&self) -> Tables<'_> {
        Tables {
            time: self.header.time,
            term_start: self.header.term_start,
            sessions: &self.sessions,
            leases: &self.leases,
            pods: &self.pods,
        }
    }
}

impl StateMachine {
    /// The whole state: a header, then sessions, leases and ended sessions. Equal states have
    /// equal records.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let header = with_unserved(self.header(), &self.unserved);
        let leases = lease_records(&self.leases, self.deadlines.looks.times());
        records(header, &self.sessions, leases, self.ended.order())
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
            looks: self.deadlines.looks.times().clone(),
            ended: self.ended.order().clone(),
            pods: self.pods.clone(),
            held: self.held,
            waiters: self.waiters,
        }
    }

    /// The header but for the unserved leases.
    fn header(&self) -> Header {
        Header {
            cluster: self.cluster,
            level: self.level,
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
    leases: impl Iterator<Item = LeaseRecord> + 'a,
    ended: &'a Line<(SessionId, EndedSession)>,
) -> impl Iterator<Item = Record> + 'a {
    let sessions = sessions.iter(None);
    let ended = ended.iter();
    iter::once(Record::Header(header))
        .chain(sessions.map(|(id, session)| Record::Session(session_record(id, session))))
        .chain(leases.map(Record::Lease))
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

fn lease_records<'a>(
    leases: &'a Tree<LeaseName, Lease>,
    looks: &'a Tree<LeaseName, ClusterTime>,
) -> impl Iterator<Item = LeaseRecord> + 'a {
    let record = |(name, lease)| lease_record(name, lease, looks.get(name).copied());
    leases.iter().map(record)
}

fn lease_record(name: &LeaseName, lease: &Lease, armed: Option<ClusterTime>) -> LeaseRecord {
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
        armed,
        revoked: lease.revoked,
        queue: queue.collect(),
    }
}
