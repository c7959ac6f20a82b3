//! The whole state as readers see it, live or frozen. Reading changes nothing.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter;
use core::ops::Bound;

use ringfence_planted::{Bug, planted};

use crate::access::Access;
use crate::access::change::Mode;
use crate::access::principal::Principal;
use crate::access::usage::Kept;
use crate::audit::{Audit, AuditRecord};
use crate::ended::{EndedRecord, EndedSessions};
use crate::event::{Granted, SessionEnd};
use crate::id::{ClusterId, FencingToken, Secret, SessionId};
use crate::lease::{GrantRecord, Lease};
use crate::looks::Looks;
use crate::name::{Identity, LeaseName};
use crate::objects::Objects;
use crate::outcome::{LostGrant, Rejection};
use crate::pod::{Pod, PodKey, PodUid};
use crate::query::{LeaseView, SessionView, Summary, Verdict};
use crate::session::Session;
use crate::settings::Settings;
use crate::snapshot::{Header, LeaseRecord, Record, SessionRecord, WaiterRecord};
use crate::time::{ClusterTime, Millis, WallTime};
use crate::tree::Tree;

/// The whole state at one index: what a snapshot says, and what readers are answered from.
///
/// [`StateMachine::freeze`](crate::StateMachine::freeze) clones it. A clone shares what has not
/// changed since, so making one takes microseconds however much there is; its memory grows, at most
/// to the size of the state, with what the machine changes while it is kept.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// Its `unserved` is empty, and its `audit_dropped` 0: they stand in fields below.
    pub(crate) header: Header,
    pub(crate) sessions: Tree<SessionId, Session>,
    pub(crate) ended: EndedSessions,
    /// Exactly one entry per living session that is bound to a Pod.
    pub(crate) pods: Tree<PodKey, SessionId>,
    pub(crate) leases: Tree<LeaseName, Lease>,
    /// Free leases whose queue wants to be served, in the order in which they came free. Each knows
    /// its place here.
    pub(crate) unserved: Tree<u64, LeaseName>,
    /// Stands in for the deadlines of leases until the level says otherwise.
    pub(crate) looks: Looks,
    /// For whom a name counts that no session holds, where that is known.
    pub(crate) kept: Tree<LeaseName, Kept>,
    pub(crate) held: u64,
    pub(crate) waiters: u64,
    pub(crate) access: Access,
    pub(crate) audit: Audit,
    pub(crate) objects: Objects,
}

impl Frozen {
    /// The state that this header describes, without sessions and leases.
    pub(crate) fn new(header: Header) -> Self {
        Self {
            header,
            sessions: Tree::default(),
            ended: EndedSessions::default(),
            pods: Tree::default(),
            leases: Tree::default(),
            unserved: Tree::default(),
            looks: Looks::default(),
            kept: Tree::default(),
            held: 0,
            waiters: 0,
            access: Access::default(),
            audit: Audit::default(),
            objects: Objects::default(),
        }
    }

    /// Cluster time.
    #[must_use]
    pub fn time(&self) -> ClusterTime {
        self.header.time
    }

    /// Wall time as the newest entries have it: for people, it decides nothing.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        self.header.wall
    }

    /// The token counter: no token up to here is granted from now on. It never falls, over all
    /// lives of the cluster.
    #[must_use]
    pub fn token_counter(&self) -> u64 {
        self.header.tokens.reached()
    }

    /// The newest entry that was applied or skipped, 0 before the first.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.header.index
    }

    /// The newest term that was opened, 0 before the first.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.header.term
    }

    /// The cluster, once it is formed.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.header.cluster
    }

    /// The clusters that this one was restored from, the newest last; at most
    /// [`LINEAGE_MAX`](crate::LINEAGE_MAX).
    #[must_use]
    pub fn lineage(&self) -> &[ClusterId] {
        &self.header.lineage
    }

    /// The token floor the cluster was formed with. With one, it must not stand before a lasting
    /// store.
    #[must_use]
    pub fn token_floor(&self) -> Option<u64> {
        self.header.token_floor
    }

    /// The level: every member knows the log commands of all versions up to this one. It never
    /// falls, so a behaviour of `apply` that older releases lack may begin with a level.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.header.level
    }

    /// Whether every member knows this level.
    pub(crate) fn is_at(&self, level: u32) -> bool {
        self.header.level >= level
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.header.settings
    }

    /// The entry that set them.
    #[must_use]
    pub fn settings_set_at(&self) -> u64 {
        self.header.settings_set_at
    }

    /// Who may do what.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The newest acts of operators, oldest first; at most
    /// [`AUDIT_RECORDS_MAX`](crate::AUDIT_RECORDS_MAX), and of each principal at least its share.
    pub fn audit(&self) -> impl Iterator<Item = &AuditRecord> {
        self.audit.iter()
    }

    /// The acts behind this log index, oldest first.
    pub fn audit_after(&self, index: u64) -> impl Iterator<Item = &AuditRecord> {
        self.audit.after(index)
    }

    /// The log index of the act from which on all are kept; `None` if there is none.
    #[must_use]
    pub fn audit_complete_from(&self) -> Option<u64> {
        Some(self.audit.complete_from()?.index)
    }

    /// Whether acts behind this log index may be gone: only
    /// [`AUDIT_RECORDS_MAX`](crate::AUDIT_RECORDS_MAX) are kept.
    #[must_use]
    pub fn audit_may_lack_after(&self, index: u64) -> bool {
        self.audit.may_lack_after(index)
    }

    /// Figures about the whole.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let header = &self.header;
        Summary {
            time: header.time,
            sessions: self.sessions.len() as u64,
            leases: self.leases.len() as u64,
            held: self.held,
            waiters: self.waiters,
            last_token: header.tokens.granted(),
            forgotten: header.forgotten,
            quiet: header.quiet_until.since(header.time),
            level: header.level,
        }
    }

    /// One lease; `None` if the name was never granted or asked for, or is forgotten.
    #[must_use]
    pub fn get(&self, name: &LeaseName) -> Option<LeaseView> {
        Some(self.lease_view(name, self.leases.get(name)?))
    }

    /// Leases whose names begin with `prefix` and stand behind `after`, in the order of their
    /// names. The first one is found by a search; each further one takes constant time.
    pub fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = LeaseView> + 'a {
        self.named(prefix, after)
            .map(|(name, lease)| self.lease_view(name, lease))
    }

    /// How many leases whose names begin with `prefix` are held. Looks at each that begins with it.
    #[must_use]
    pub fn held(&self, prefix: &str) -> usize {
        self.named(prefix, None)
            .filter(|(_, lease)| lease.grant.is_some())
            .count()
    }

    /// The greatest token granted for each remembered name that begins with `prefix` and stands
    /// behind `after`, in the order of the names.
    pub fn floors<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (LeaseName, FencingToken)> + 'a {
        self.named(prefix, after)
            .filter_map(|(name, lease)| Some((name.clone(), lease.floor?)))
    }

    fn named<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a LeaseName, &'a Lease)> + use<'a> {
        // Names before the prefix are not among those that are asked for, wherever a page begins.
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.leases
            .iter_from::<str>(from)
            .take_while(move |(name, _)| name.as_str().starts_with(prefix))
    }

    fn lease_view(&self, name: &LeaseName, lease: &Lease) -> LeaseView {
        let grant = lease.grant.as_deref();
        let session = grant.and_then(|grant| self.sessions.get(&grant.session));
        let block = lease.blocked.as_ref().map(|block| block.over());
        LeaseView {
            name: name.clone(),
            holder: grant.map(|grant| grant.granted(name, self.identity_of(grant.session))),
            ttl: session.map(|session| session.ttl()).unwrap_or_default(),
            remaining: session
                .map(|session| self.remaining(session))
                .unwrap_or_default(),
            waiters: lease.waiters(),
            floor: lease.floor,
            blocked: block.unwrap_or_default().since(self.time()),
        }
    }

    /// The grant of a lease that is in force.
    pub(crate) fn grant_of(&self, name: &LeaseName) -> Option<&GrantRecord> {
        self.leases.get(name)?.grant.as_deref()
    }

    /// The same as events and answers show it.
    pub(crate) fn granted(&self, name: &LeaseName) -> Option<Granted> {
        let grant = self.grant_of(name)?;
        Some(grant.granted(name, self.identity_of(grant.session)))
    }

    /// The identity of a holder. Every holder is alive; were one not there, its lease would be held
    /// all the same, and must not look free.
    pub(crate) fn identity_of(&self, id: SessionId) -> Identity {
        let session = self.sessions.get(&id);
        session.map_or_else(Identity::unknown, |session| session.identity.clone())
    }

    /// What a token is worth now.
    #[must_use]
    pub fn check(&self, name: &LeaseName, token: FencingToken) -> Verdict {
        if self
            .grant_of(name)
            .is_some_and(|grant| grant.token == token)
        {
            return Verdict::Current;
        }
        // A forgotten name has no floor, so its tokens are `Ended` and never `Superseded`: both mean
        // that the grant is not current.
        match self.leases.get(name).and_then(|lease| lease.floor) {
            Some(newest) if newest > token => Verdict::Superseded { newest },
            _ if token.get() > self.header.tokens.granted() => Verdict::Unknown,
            _ => Verdict::Ended,
        }
    }

    /// A session whose time has not come.
    pub(crate) fn alive(&self, id: SessionId) -> Option<&Session> {
        let session = self.sessions.get(&id)?;
        session.is_alive(&self.header).then_some(session)
    }

    /// One session with its leases; `None` if it is not alive.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<SessionView> {
        let session = self.sessions.get(&id)?;
        Some(SessionView {
            leases: session.holds().to_vec(),
            ..self.session_view(id, session)
        })
    }

    /// Whose a living session is; `None` if that was never proven, or if it is not alive.
    #[must_use]
    pub fn session_owner(&self, id: SessionId) -> Option<&Principal> {
        self.sessions.get(&id)?.owner.as_ref()
    }

    /// Sessions behind `after` in the order of their numbers, without their leases.
    pub fn sessions(&self, after: Option<SessionId>) -> impl Iterator<Item = SessionView> + '_ {
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        self.sessions
            .iter_from(from)
            .map(|(id, session)| self.session_view(*id, session))
    }

    fn session_view(&self, id: SessionId, session: &Session) -> SessionView {
        SessionView {
            session: id,
            identity: session.identity.clone(),
            ttl: session.ttl(),
            remaining: self.remaining(session),
            leases: Vec::new(),
            // At most 4,096.
            waits: u32::try_from(session.waits().len()).unwrap_or(u32::MAX),
            pod: session.pod().cloned(),
        }
    }

    fn remaining(&self, session: &Session) -> Millis {
        match session.pod() {
            Some(_) => Millis::FOREVER,
            None => session.deadline(self.header.term_start).since(self.time()),
        }
    }

    /// How long ago a session was last kept alive; `None` if it is not alive.
    #[must_use]
    pub fn silence(&self, id: SessionId) -> Option<Millis> {
        Some(self.time().since(self.sessions.get(&id)?.seen()))
    }

    /// Grants of a session that ended against its will and that it has not acknowledged; none if it is
    /// not alive.
    #[must_use]
    pub fn lost(&self, id: SessionId) -> &[LostGrant] {
        self.sessions.get(&id).map_or(&[], Session::lost)
    }

    /// Why a session ended, within the last minute of cluster time.
    #[must_use]
    pub fn session_end(&self, id: SessionId) -> Option<SessionEnd> {
        Some(self.ended.get(id)?.cause.clone())
    }

    /// Whether a session with this number was ever opened, alive or not. A node that lags may be
    /// asked about sessions of entries that it has yet to apply.
    #[must_use]
    pub fn has_opened(&self, id: SessionId) -> bool {
        id.get() < self.header.next_session
    }

    /// Whether a session is alive and this is its secret. Where rights bind, the cause of an end is for
    /// its session too: it says which principal evicted it, and why.
    ///
    /// # Errors
    /// [`Rejection::SessionExpired`] or [`Rejection::WrongSecret`].
    pub fn authenticate(&self, id: SessionId, secret: &Secret) -> Result<(), Rejection> {
        let binds = self.access.mode() == Mode::Enforced && !planted(Bug::EndShownToNumbers);
        let other = |ended: &EndedRecord| binds && !ended.secret.proves(secret);
        match self.sessions.get(&id) {
            Some(session) if session.secret.proves(secret) => Ok(()),
            Some(_) => Err(Rejection::WrongSecret),
            None if self.ended.get(id).is_some_and(other) => Err(Rejection::WrongSecret),
            None => {
                let cause = self.session_end(id);
                Err(Rejection::SessionExpired { cause })
            }
        }
    }

    /// Who opened a living session, for its life; `None` if that was not proven, or there is no such
    /// session.
    #[must_use]
    pub fn owner(&self, id: SessionId) -> Option<&crate::Principal> {
        self.sessions.get(&id)?.owner.as_ref()
    }

    /// The Pods that living sessions are bound to, and those of electors whose grants end with them.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        let ids = self.pods.iter().map(|(_, id)| id);
        let bound = ids.filter_map(|id| self.sessions.get(id)?.pod());
        bound.chain(self.objects.pods())
    }

    /// Whether any living session is bound to a Pod. A term of a Lease object is not counted.
    #[must_use]
    pub fn has_pods(&self) -> bool {
        !self.pods.is_empty()
    }

    /// Whether a living session ends with this Pod.
    #[must_use]
    pub fn has_pod(&self, uid: &PodUid) -> bool {
        self.bound_to(uid).is_some()
    }

    /// The session that is bound to the first container of this Pod, in the order of their names;
    /// then those of electors in the Pod.
    pub(crate) fn bound_to(&self, uid: &PodUid) -> Option<SessionId> {
        let first = (uid.clone(), Arc::from(""));
        let bound = self.pods.iter_from(Bound::Included(&first)).next();
        let bound = bound.filter(|((found, _), _)| found == uid);
        let bound = bound.map(|(_, id)| *id);
        bound.or_else(|| self.objects.bound_to(uid))
    }

    /// The whole state: a header, then sessions, leases, ended sessions and rights. Equal states have
    /// equal records.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let sessions = self.sessions.iter();
        let leases = self.leases.iter();
        iter::once(Record::Header(self.header_record()))
            .chain(sessions.map(|(id, session)| Record::Session(session_record(*id, session))))
            .chain(leases.map(|(name, lease)| Record::Lease(self.lease_record(name, lease))))
            .chain(self.ended.iter().cloned().map(Record::Ended))
            .chain(self.access.records().map(Record::Access))
            .chain(self.audit.iter().cloned().map(Record::Audit))
            .chain(self.objects.records())
    }

    fn header_record(&self) -> Header {
        let unserved = self.unserved.iter().map(|(_, name)| name.clone());
        Header {
            unserved: unserved.collect(),
            audit_dropped: self.audit.dropped(),
            ..self.header.clone()
        }
    }

    fn lease_record(&self, name: &LeaseName, lease: &Lease) -> LeaseRecord {
        let queue = lease.queue.iter().map(|(&place, waiter)| WaiterRecord {
            place,
            session: waiter.session,
            request: waiter.request,
            until: waiter.until,
            data: waiter.data.clone(),
            lock_delay: waiter.lock_delay,
        });
        let kept = self.kept.get(name);
        LeaseRecord {
            name: name.clone(),
            floor: lease.floor,
            grant: lease.grant.as_deref().cloned(),
            blocked: lease.blocked.as_deref().cloned(),
            idle_since: lease.idle_since,
            armed: self.looks.time(name),
            revoked: lease.revoked,
            kept_for: kept.map(|kept| kept.of.clone()),
            kept_lost: kept.is_some_and(|kept| kept.lost),
            queue: queue.collect(),
        }
    }
}

fn session_record(id: SessionId, session: &Session) -> SessionRecord {
    SessionRecord {
        id,
        open: session.open,
        secret: session.secret,
        identity: session.identity.clone(),
        owner: session.owner.clone(),
        ttl: session.ttl(),
        seen: session.seen(),
        armed: session.armed,
        lowest: session.requests.lowest(),
        answers: session.requests.records(),
        lost: session.lost().to_vec(),
        pod: session.pod().cloned(),
    }
}
