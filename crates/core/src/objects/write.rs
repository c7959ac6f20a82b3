//! Writes of objects, judged on the state that they find.

use alloc::boxed::Box;

use ringfence_planted::{Bug, planted};

use super::object::{Candidate, LeaseObject, ObjectMetadata, PRINCIPAL_OBJECTS_MAX, Term};
use crate::access::change::Mode;
use crate::access::principal::Principal;
use crate::access::rules::Scope;
use crate::access::verb::Verb;
use crate::command::{Command, ObjectSpec, ObjectWrite, Revoke, WriteObject};
use crate::id::FencingToken;
use crate::lease::GrantRecord;
use crate::level::{LEVEL_OBJECTS, LEVEL_RESTORE};
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::outcome::{Holder, Limit, ObjectWritten, Outcome, Rejection};
use crate::time::{ClusterTime, WallTime};

/// What a write did to the grant.
pub(super) enum Done {
    /// Nothing: only metadata was written, or a lease was given back.
    Written,
    /// The writer holds the lease with this token, as it did or from now on.
    Held(FencingToken),
}

impl StateMachine {
    /// Carries out a write of an object that is based on its present version.
    pub(crate) fn write_object(&mut self, ask: &WriteObject) -> Result<Outcome, Rejection> {
        if !self.is_at(LEVEL_OBJECTS) {
            return Err(Rejection::NotReady);
        }
        // Ends a term whose time is over but was not reached yet: its holder comes too late.
        if let Some(term) = self.term_of(&ask.name) {
            self.end_if_due(term.session);
        }
        let candidate = Candidate {
            principal: self.proven().cloned(),
            pod: ask.pod.clone(),
        };
        // Before anything of the object is shown, its version too.
        self.check_writer(ask, &candidate)?;
        self.check_version(ask)?;
        match &ask.write {
            ObjectWrite::Put { metadata, spec } => {
                self.check_object_room(&ask.name, metadata)?;
                let done = match spec {
                    None => {
                        self.demand(Verb::Acquire, &ask.name)?;
                        Done::Written
                    }
                    Some(spec) => self.write_spec(&ask.name, &candidate, spec)?,
                };
                if let (Done::Held(_), Some(pod)) = (&done, &ask.watched) {
                    self.bind_term(&ask.name, pod);
                }
                self.put_metadata(&ask.name, metadata);
                Ok(self.written(&ask.name, done))
            }
            ObjectWrite::Delete { revoke } => {
                self.delete_object(&ask.name, &candidate, revoke.as_ref())
            }
        }
    }

    /// A write is based on the present version, or on there being no object.
    fn check_version(&self, ask: &WriteObject) -> Result<(), Rejection> {
        let present = self.state.objects.get(&ask.name);
        let present = present.map(|object| object.version);
        match present == ask.version || planted(Bug::ObjectVersionIgnored) {
            true => Ok(()),
            false => Err(Rejection::ObjectChanged { present }),
        }
    }

    /// The holder needs no right to renew, nor to give back. Who ends the grant of another one needs
    /// that right alone.
    fn check_writer(&self, ask: &WriteObject, candidate: &Candidate) -> Result<(), Rejection> {
        if self.is_held_by(&ask.name, candidate) {
            return Ok(());
        }
        let may_acquire = self.demand(Verb::Acquire, &ask.name);
        match &ask.write {
            ObjectWrite::Delete { revoke: Some(_) } => self
                .demand(Verb::Revoke, &ask.name)
                .or_else(|denied| may_acquire.map_err(|_| denied)),
            _ => may_acquire,
        }
    }

    pub(super) fn term_of(&self, name: &LeaseName) -> Option<&Term> {
        self.state.objects.get(name)?.term.as_ref()
    }

    /// A write that says who holds the lease: a release, a keep-alive or a new term.
    fn write_spec(
        &mut self,
        name: &LeaseName,
        candidate: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<Done, Rejection> {
        let free = spec.holder.as_str().is_empty();
        let Some(grant) = self.grant_of(name).cloned() else {
            if free {
                return Ok(Done::Written);
            }
            return self.begin_term(name, candidate, spec);
        };
        let own = self.is_held_by(name, candidate);
        let releases = own || planted(Bug::AnyCandidateReleases);
        if free && releases && Self::may_end(candidate) {
            self.end_term(name, grant.session);
            return Ok(Done::Written);
        }
        let renews = (own || self.is_unclaimed(name)) && !free;
        if !renews || self.identity_of(grant.session) != spec.holder {
            return Err(self.held_by(&grant));
        }
        if spec.new_term {
            return match own && Self::may_end(candidate) {
                true => self.renew_term(name, &grant, candidate, spec),
                false => Err(self.held_by(&grant)),
            };
        }
        if !own {
            // It takes over a term that was not its own: one that lost its own must notice first.
            self.check_owing(name, candidate, spec)?;
        }
        self.keep_term(name, grant.session, candidate, spec)?;
        Ok(Done::Held(grant.token))
    }

    /// Whether the grant in force was made through the endpoint to this very candidate.
    fn is_held_by(&self, name: &LeaseName, candidate: &Candidate) -> bool {
        if planted(Bug::AnyCandidateRenews) {
            return self.term_of(name).is_some();
        }
        let binds = self.access.mode() == Mode::Enforced;
        let term = self.term_of(name);
        term.is_some_and(|term| term.candidate.is(candidate, binds))
    }

    /// Whether nothing was proven of the holder when its term began. As with sessions, it becomes the
    /// first one's that is proven and renews it; that one needs the right to acquire it.
    pub(super) fn is_unclaimed(&self, name: &LeaseName) -> bool {
        self.term_of(name).is_some_and(|term| {
            let session = self.sessions.get(&term.session);
            let unowned = session.is_some_and(|session| session.owner.is_none());
            unowned && term.candidate.is_unproven()
        })
    }

    /// Whether a holder may end its term. Several processes may be behind a principal without a Pod:
    /// one of them would end the term of another.
    fn may_end(holder: &Candidate) -> bool {
        holder.pod.is_some() || planted(Bug::ReleaseByAnyProcess)
    }

    pub(super) fn held_by(&self, grant: &GrantRecord) -> Rejection {
        let holder = Holder {
            session: grant.session,
            identity: self.identity_of(grant.session),
            token: grant.token,
            data: grant.data.clone(),
        };
        Rejection::Held {
            holder,
            mine: false,
        }
    }

    pub(super) fn proven(&self) -> Option<&Principal> {
        self.caller.as_ref().map(|caller| &caller.principal)
    }

    pub(super) fn demand(&self, verb: Verb, name: &LeaseName) -> Result<(), Rejection> {
        self.access.demand(self.proven(), verb, Scope::Name(name))
    }

    fn delete_object(
        &mut self,
        name: &LeaseName,
        candidate: &Candidate,
        revoke: Option<&Revoke>,
    ) -> Result<Outcome, Rejection> {
        if self.state.objects.get(name).is_none() {
            return Err(Rejection::ObjectChanged { present: None });
        }
        match self.grant_of(name).cloned() {
            None => self.demand(Verb::Acquire, name)?,
            Some(grant) if self.is_held_by(name, candidate) && Self::may_end(candidate) => {
                self.end_term(name, grant.session);
            }
            Some(grant) => {
                let revoke = revoke.filter(|revoke| revoke.name == *name);
                let Some(revoke) = revoke.filter(|revoke| revoke.token == grant.token) else {
                    return Err(self.held_by(&grant));
                };
                self.demand(Verb::Revoke, name)?;
                self.revoke(revoke)?;
                // An operator's act, as by its own command.
                self.note(&Command::Revoke(revoke.clone()), &Outcome::Done);
            }
        }
        let Some(mut object) = self.object(name) else {
            return Err(Rejection::ObjectChanged { present: None });
        };
        object.version = self.remove_object(name);
        Ok(Outcome::Object(Box::new(ObjectWritten {
            object,
            held: None,
        })))
    }

    /// Whether the cluster has room for an object that this write makes, and its writer for one more of
    /// its own. The object of a session's lease becomes the writer's when its metadata changes, and in
    /// the entry that has freed the lease.
    fn check_object_room(
        &self,
        name: &LeaseName,
        metadata: &ObjectMetadata,
    ) -> Result<(), Rejection> {
        let objects = &self.state.objects;
        let known = objects.get(name);
        let free = self.grant_of(name).is_none();
        if known.is_some_and(|object| !object.is_stayed_by(metadata, free)) {
            return Ok(());
        }
        let fair = self.is_at(LEVEL_RESTORE);
        objects.room_for(name, fair).map_err(Rejection::Limit)?;
        let owner = self
            .object_owner()
            .filter(|_| self.access.mode() == Mode::Enforced);
        let own = owner.map_or(0, |owner| self.usages.of(&owner).objects);
        match own >= PRINCIPAL_OBJECTS_MAX && !planted(Bug::ObjectsUncounted) {
            true => Err(Rejection::Limit(Limit::PrincipalObjects(
                PRINCIPAL_OBJECTS_MAX,
            ))),
            false => Ok(()),
        }
    }

    /// For whom an object counts that the caller makes. Below the level for none, as in older releases.
    pub(super) fn object_owner(&self) -> Option<Principal> {
        let binds = self.access.mode() == Mode::Enforced;
        let owner = self.proven().cloned();
        let owner = owner.or(binds.then(Principal::anonymous));
        owner.filter(|_| self.is_at(LEVEL_RESTORE))
    }

    fn put_metadata(&mut self, name: &LeaseName, metadata: &ObjectMetadata) {
        let owner = self.object_owner();
        self.make_object(name, owner.clone());
        let free = self.grant_of(name).is_none();
        let changed = |object: &LeaseObject| {
            object.metadata != *metadata || object.is_stayed_by(metadata, free)
        };
        if self.state.objects.get(name).is_some_and(changed) {
            self.change_object(name, |object| {
                object.metadata = metadata.clone();
                object.stay(owner);
            });
        }
    }

    /// Makes an object of this name unless there is one.
    pub(super) fn make_object(&mut self, name: &LeaseName, owner: Option<Principal>) {
        if self.state.objects.get(name).is_some() {
            return;
        }
        let version = self.next_version();
        let object = LeaseObject {
            version,
            created: version,
            created_at: self.wall(),
            metadata: ObjectMetadata::default(),
            seconds: 0,
            acquired: WallTime::default(),
            renewed: WallTime::default(),
            heard: ClusterTime::default(),
            transitions: 0,
            term: None,
            native: false,
            owner,
        };
        self.put_object(name, object);
    }

    fn written(&self, name: &LeaseName, done: Done) -> Outcome {
        let held = match done {
            Done::Written => None,
            Done::Held(token) => {
                let session = self.term_of(name).map(|term| term.session);
                let session = session.and_then(|id| self.sessions.get(&id));
                session.map(|session| (token, session.ttl()))
            }
        };
        match self.object(name) {
            Some(object) => Outcome::Object(Box::new(ObjectWritten { object, held })),
            None => Outcome::Rejected(Rejection::ObjectChanged { present: None }),
        }
    }
}
