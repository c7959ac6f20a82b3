//! A state taken apart, for those who check it.

use std::collections::BTreeSet;

use ringfence_core::snapshot::{
    EndedRecord, GoneRecord, Header, LeaseRecord, ObjectRecord, Record, SessionRecord,
};
use ringfence_core::{
    AccessRecord, AuditRecord, ClusterTime, LeaseName, LeaseObject, Mode, Principal,
    PrincipalLimits, SessionId, StateMachine,
};

/// The records of a state by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// What there is once.
    pub header: Header,
    /// Living sessions in the order of their numbers.
    pub sessions: Vec<SessionRecord>,
    /// Leases in the order of their names.
    pub leases: Vec<LeaseRecord>,
    /// Sessions that ended within the last minute.
    pub ended: Vec<EndedRecord>,
    /// Lease objects in the order of their names.
    pub objects: Vec<ObjectRecord>,
    /// Lease objects that were deleted and are remembered.
    pub gone: Vec<GoneRecord>,
    /// Who may do what.
    pub access: Vec<AccessRecord>,
    /// The acts of operators, oldest first.
    pub acts: Vec<AuditRecord>,
    /// When the state says that something happens on its own next.
    pub next_deadline: Option<ClusterTime>,
}

impl View {
    /// Whether a cluster is formed and has all of its state.
    #[must_use]
    pub fn is_formed(&self) -> bool {
        self.header.cluster.is_some() && self.header.seeding.is_none()
    }

    /// The records of `machine`.
    ///
    /// # Panics
    /// If they do not begin with a header.
    #[must_use]
    pub fn of(machine: &StateMachine) -> Self {
        let (mut header, mut sessions, mut leases, mut ended) = (None, vec![], vec![], vec![]);
        let (mut access, mut acts, mut objects, mut gone) = (vec![], vec![], vec![], vec![]);
        for record in machine.records() {
            match record {
                Record::Header(found) => header = Some(found),
                Record::Session(session) => sessions.push(session),
                Record::Lease(lease) => leases.push(lease),
                Record::Ended(session) => ended.push(session),
                Record::Access(part) => access.push(part),
                Record::Object(object) => objects.push(object),
                Record::GoneObject(object) => gone.push(object),
                Record::Audit(act) => acts.push(act),
                Record::Owing(_) => {}
            }
        }
        Self {
            header: header.expect("every state has a header"),
            sessions,
            leases,
            ended,
            objects,
            gone,
            access,
            acts,
            next_deadline: machine.next_deadline(),
        }
    }

    /// Cluster time.
    #[must_use]
    pub fn time(&self) -> ClusterTime {
        self.header.time
    }

    /// A living session.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<&SessionRecord> {
        self.sessions.iter().find(|session| session.id == id)
    }

    /// A remembered lease.
    #[must_use]
    pub fn lease(&self, name: &LeaseName) -> Option<&LeaseRecord> {
        self.leases.iter().find(|lease| lease.name == *name)
    }

    /// A Lease object.
    #[must_use]
    pub fn object(&self, name: &LeaseName) -> Option<&LeaseObject> {
        let record = self.objects.iter().find(|record| record.name == *name);
        record.map(|record| &record.object)
    }

    /// Leases and waits of a session, and losses that it has not acknowledged.
    #[must_use]
    pub fn leases_of(&self, id: SessionId) -> usize {
        let held = |lease: &LeaseRecord| lease.grant.iter().filter(|g| g.session == id).count();
        let waits = |lease: &LeaseRecord| lease.queue.iter().filter(|w| w.session == id).count();
        let count: usize = self.leases.iter().map(|l| held(l) + waits(l)).sum();
        count + self.session(id).map_or(0, |session| session.lost.len())
    }

    /// How many leases, waits and losses sessions of a principal have, and how many names are kept for it
    /// that do not count among these. `anonymous` has what sessions have that have no principal.
    #[must_use]
    pub fn names_of(&self, principal: &Principal) -> usize {
        let own = |id: SessionId| {
            let owner = self.session(id).map(|session| session.owner.as_ref());
            owner.is_some_and(|owner| named(owner) == principal.as_str())
        };
        let count = |lease: &LeaseRecord| {
            let held = lease.grant.iter().filter(|grant| own(grant.session));
            let waits = lease.queue.iter().filter(|waiter| own(waiter.session));
            let kept = lease.kept_for.iter().filter(|of| *of == principal);
            let first = lease.queue.first().is_some_and(|first| own(first.session));
            let kept = kept.filter(|_| !lease.kept_lost && !first);
            held.count() + waits.count() + kept.count()
        };
        let sessions = self.sessions.iter().filter(|session| own(session.id));
        let lost: usize = sessions.map(|session| session.lost.len()).sum();
        self.leases.iter().map(count).sum::<usize>() + lost
    }

    /// The mode, and how much one principal may have.
    #[must_use]
    pub fn principal_limits(&self) -> (Mode, PrincipalLimits) {
        let mode = self.access.iter().find_map(|record| match record {
            AccessRecord::Mode { mode, limits, .. } => Some((*mode, *limits)),
            _ => None,
        });
        mode.unwrap_or_default()
    }

    /// Principals that sessions belong to, or names are kept for.
    #[must_use]
    pub fn principals(&self) -> BTreeSet<Principal> {
        let sessions = self.sessions.iter();
        let owners = sessions.map(|session| session.owner.clone());
        let owners = owners.map(|owner| owner.unwrap_or_else(Principal::anonymous));
        let kept = self.leases.iter().map(|lease| lease.kept_for.clone());
        owners.chain(kept.flatten()).collect()
    }

    /// Whether the state says that work is left over for the next entry.
    #[must_use]
    pub fn has_work_left(&self) -> bool {
        self.next_deadline.is_some_and(|next| next <= self.time())
    }
}

/// What has no principal counts for `anonymous`.
fn named(principal: Option<&Principal>) -> &str {
    principal.map_or(Principal::ANONYMOUS, Principal::as_str)
}
