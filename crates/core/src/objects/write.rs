//! Writes of objects, judged on the state that they find.

use alloc::boxed::Box;

use ringfence_planted::{Bug, planted};

use super::object::{Candidate, LeaseObject, ObjectMetadata, Term};
use crate::access::change::Mode;
use crate::access::rules::Scope;
use crate::access::verb::Verb;
use crate::command::{Acquire, ObjectSpec, ObjectWrite, Open, Revoke, WriteObject};
use crate::ending::EndKind;
use crate::event::{EndCause, SessionEnd};
use crate::id::{FencingToken, SessionId};
use crate::lease::GrantRecord;
use crate::level::LEVEL_OBJECTS;
use crate::machine::StateMachine;
use crate::name::{HolderData, Identity, LeaseName};
use crate::outcome::{Acquired, Holder, ObjectWritten, Outcome, Rejection};
use crate::time::{Millis, WallTime};

/// The TTL of a term, in thousandths of the duration that its holder asks for. A client of
/// Kubernetes' election goes on for longer than that duration: for a request's time-out and a pause
/// between two tries beyond its deadline.
const TTL_PER_MILLE: u64 = 1_500;

/// The TTL of a term whose holder asks for so many seconds.
#[must_use]
pub fn term_ttl(seconds: u32) -> Millis {
    Millis(u64::from(seconds) * TTL_PER_MILLE)
}

/// What a write did to the grant.
enum Done {
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
        self.check_version(ask)?;
        let candidate = Candidate {
            principal: self.caller.as_ref().map(|caller| caller.principal.clone()),
            pod: ask.pod.clone(),
        };
        match &ask.write {
            ObjectWrite::Put { metadata, spec } => {
                if self.state.objects.get(&ask.name).is_none() {
                    let room = self.state.objects.room_for(&ask.name);
                    room.map_err(Rejection::Limit)?;
                }
                let done = match spec {
                    None => {
                        self.demand(Verb::Acquire, &ask.name)?;
                        Done::Written
                    }
                    Some(spec) => self.write_spec(&ask.name, &candidate, spec)?,
                };
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

    fn term_of(&self, name: &LeaseName) -> Option<&Term> {
        self.state.objects.get(name)?.term.as_ref()
    }

    /// A write that says who holds the lease: a release, a keep-alive or a new term.
    fn write_spec(
        &mut self,
        name: &LeaseName,
        candidate: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<Done, Rejection> {
        let held = self.grant_of(name).cloned();
        let free = spec.holder.as_str().is_empty();
        let Some(grant) = held else {
            self.demand(Verb::Acquire, name)?;
            if free {
                return Ok(Done::Written);
            }
            return self.begin_term(name, candidate, spec);
        };
        if !self.is_held_by(name, candidate) {
            self.demand(Verb::Acquire, name)?;
            return Err(self.held_by(&grant));
        }
        if free {
            // Several processes may be behind a principal without a Pod: one of them would end the
            // term of another.
            if candidate.pod.is_none() && !planted(Bug::ReleaseByAnyProcess) {
                return Err(self.held_by(&grant));
            }
            self.end_term(name, grant.session);
            return Ok(Done::Written);
        }
        if self.identity_of(grant.session) != spec.holder {
            return Err(self.held_by(&grant));
        }
        if spec.new_term {
            self.check_seconds(spec)?;
            self.end_term(name, grant.session);
            return self.begin_term(name, candidate, spec);
        }
        self.keep_term(name, grant.session, candidate, spec)?;
        Ok(Done::Held(grant.token))
    }

    /// Whether the grant in force was made through the endpoint to this very candidate.
    fn is_held_by(&self, name: &LeaseName, candidate: &Candidate) -> bool {
        if planted(Bug::AnyCandidateRenews) {
            return self.term_of(name).is_some();
        }
        // As with sessions: what was opened while nothing was proven is the first one's that is.
        let binds = self.access.mode() == Mode::Enforced;
        self.term_of(name).is_some_and(|term| {
            let holder = &term.candidate;
            let same = holder.principal.is_none() || holder.principal == candidate.principal;
            holder.pod == candidate.pod && (same || !binds)
        })
    }

    fn held_by(&self, grant: &GrantRecord) -> Rejection {
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

    fn demand(&self, verb: Verb, name: &LeaseName) -> Result<(), Rejection> {
        let principal = self.caller.as_ref().map(|caller| &caller.principal);
        self.access.demand(principal, verb, Scope::Name(name))
    }

    fn check_seconds(&self, spec: &ObjectSpec) -> Result<Millis, Rejection> {
        let ttl = term_ttl(spec.seconds);
        let (min, max) = (self.settings().ttl_min, self.settings().ttl_max);
        match ttl >= min && ttl <= max {
            true => Ok(ttl),
            false => Err(Rejection::InvalidTtl {
                offered: ttl,
                min,
                max,
            }),
        }
    }

    /// Grants a free lease to a candidate, in a session of its own.
    fn begin_term(
        &mut self,
        name: &LeaseName,
        candidate: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<Done, Rejection> {
        let ttl = self.check_seconds(spec)?;
        self.check_owing(name, candidate, spec)?;
        // Refused here, nothing is opened.
        if let Some(obstacle) = self.obstacle_now(None, name) {
            return Err(obstacle);
        }
        let acquire = Acquire {
            name: name.clone(),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        };
        let open = Open {
            id: spec.open,
            secret: spec.secret,
            seen: None,
            ttl,
            identity: spec.holder.clone(),
            acquire: Some(acquire),
        };
        if self.knows_open(&open.id) {
            return Err(Rejection::OpenIdUsed);
        }
        let Outcome::Opened(opened) = self.open(&open, None)? else {
            return Err(Rejection::NotReady);
        };
        let granted = match opened.acquired {
            Some(Acquired::Granted(granted)) => granted,
            refused => {
                self.end_session(opened.session, &SessionEnd::Closed);
                return Err(match refused {
                    Some(Acquired::Refused(why)) => why,
                    _ => Rejection::NotReady,
                });
            }
        };
        let term = Term {
            token: granted.token,
            session: opened.session,
            candidate: candidate.clone(),
        };
        let wall = self.wall();
        self.state.objects.settle(name, &spec.holder, candidate);
        self.make_object(name);
        self.change_object(name, |object| {
            object.seconds = spec.seconds;
            (object.acquired, object.renewed) = (wall, wall);
            object.term = Some(term);
        });
        Ok(Done::Held(granted.token))
    }

    /// Refuses a candidate that lost its last term and may not know. The first refusal counts, and is
    /// noted; so it is the only one that changes anything.
    fn check_owing(
        &mut self,
        name: &LeaseName,
        candidate: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<(), Rejection> {
        let now = self.time();
        let duration = Millis::from_secs(u64::from(spec.seconds));
        let objects = &mut self.state.objects;
        let note = objects.owing_of(name, &spec.holder, candidate);
        let owed = note.and_then(|note| note.remaining(now, duration));
        let Some(remaining) = owed.filter(|_| !planted(Bug::OwingForgotten)) else {
            return Ok(());
        };
        objects.note_refusal(name, &spec.holder, candidate, now.after(duration));
        Err(Rejection::Owing { remaining })
    }

    fn keep_term(
        &mut self,
        name: &LeaseName,
        session: SessionId,
        candidate: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<(), Rejection> {
        let ttl = self.check_seconds(spec)?;
        self.check_owner(session)?;
        let now = self.time();
        let before = self.change_session(session, |session| {
            let before = session.ttl();
            session.keep_alive(now);
            session.lengthen(ttl);
            (before, session.ttl())
        });
        if let Some((before, after)) = before
            && before != after
        {
            self.ttls.remove(before);
            self.ttls.insert(after);
        }
        let wall = self.wall();
        self.change_object(name, |object| {
            object.seconds = spec.seconds;
            object.renewed = wall;
            if let Some(term) = &mut object.term {
                let known = term.candidate.principal.take();
                term.candidate.principal = known.or_else(|| candidate.principal.clone());
            }
        });
        Ok(())
    }

    /// Ends a term at its holder's wish.
    fn end_term(&mut self, name: &LeaseName, session: SessionId) {
        self.end_grant(name, &EndCause::Released, EndKind::Graceful);
        self.end_session(session, &SessionEnd::Closed);
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
            Some(grant) if self.is_held_by(name, candidate) && candidate.pod.is_some() => {
                self.end_term(name, grant.session);
            }
            Some(grant) => {
                let revoke = revoke.filter(|revoke| revoke.name == *name);
                let Some(revoke) = revoke.filter(|revoke| revoke.token == grant.token) else {
                    return Err(self.held_by(&grant));
                };
                self.demand(Verb::Revoke, name)?;
                self.revoke(revoke)?;
            }
        }
        let version = self.next_version();
        let shown = self.object(name);
        let forgotten = self.state.objects.delete(name, version);
        let header = &mut self.state.header;
        header.versions_forgotten = header.versions_forgotten.max(forgotten);
        let Some(mut object) = shown else {
            return Err(Rejection::ObjectChanged { present: None });
        };
        object.version = version;
        Ok(Outcome::Object(Box::new(ObjectWritten {
            object,
            held: None,
        })))
    }

    fn put_metadata(&mut self, name: &LeaseName, metadata: &ObjectMetadata) {
        self.make_object(name);
        let changed = |object: &LeaseObject| object.metadata != *metadata;
        if self.state.objects.get(name).is_some_and(changed) {
            self.change_object(name, |object| object.metadata = metadata.clone());
        }
    }

    /// Makes an object of this name unless there is one.
    fn make_object(&mut self, name: &LeaseName) {
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
            transitions: 0,
            term: None,
        };
        self.state.objects.put(name, object);
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

    /// Takes notice of the end of a grant whose name has an object.
    pub(crate) fn object_freed(&mut self, name: &LeaseName, identity: &Identity, cause: &EndCause) {
        let willing = matches!(
            cause,
            EndCause::Released | EndCause::Closed | EndCause::Transferred { .. }
        );
        let mut ended = None;
        self.change_object(name, |object| ended = object.term.take());
        if let Some(term) = ended.filter(|_| !willing) {
            let objects = &mut self.state.objects;
            objects.owes(name, identity.clone(), term.candidate);
        }
    }

    /// Takes notice of a grant whose name has an object. The first one makes no transition.
    pub(crate) fn object_granted(&mut self, name: &LeaseName, ttl: Millis) {
        let wall = self.wall();
        self.change_object(name, |object| {
            if object.acquired.0 > 0 {
                object.transitions = object.transitions.saturating_add(1);
            }
            object.seconds = u32::try_from(ttl.0.div_ceil(1_000)).unwrap_or(u32::MAX);
            (object.acquired, object.renewed) = (wall, wall);
        });
    }
}
