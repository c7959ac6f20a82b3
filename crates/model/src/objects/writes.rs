//! What writes of objects do, by the table of the endpoint's rules.

use ringfence_core::snapshot::GrantRecord;
use ringfence_core::{
    Acquire, Acquired, Candidate, ClusterTime, EndCause, FencingToken, Holder, HolderData,
    LeaseName, Limit, Millis, ObjectMetadata, ObjectSpec, ObjectWrite, ObjectWritten, Open,
    Outcome, Pod, Rejection, Revoke, SessionEnd, SessionId, Verb, WriteObject,
};

use super::super::Model;
use super::super::rights::To;
use super::owing::{is_one, is_unproven};
use super::{LEVEL_OBJECTS, LEVEL_RESTORE, Term};

impl Model {
    pub(in super::super) fn write_object(&mut self, write: &WriteObject) -> Outcome {
        match self.try_write(write) {
            Ok(written) => Outcome::Object(Box::new(written)),
            Err(refused) => Outcome::Rejected(refused),
        }
    }

    fn try_write(&mut self, write: &WriteObject) -> Result<ObjectWritten, Rejection> {
        if self.level < LEVEL_OBJECTS {
            return Err(Rejection::NotReady);
        }
        let name = &write.name;
        let by = Candidate {
            principal: self.principal().cloned(),
            pod: write.pod.clone(),
        };
        self.may_write(write, &by)?;
        let present = self.object(name).map(|object| object.version);
        if present != write.version {
            return Err(Rejection::ObjectChanged { present });
        }
        match &write.write {
            ObjectWrite::Delete { revoke } => self.delete_object(name, &by, revoke.as_ref()),
            ObjectWrite::Put { metadata, spec } => {
                if let Some(limit) = self.write_lacks_room(name, metadata) {
                    return Err(Rejection::Limit(limit));
                }
                let held = match spec {
                    None => {
                        self.may(Verb::Acquire, name)?;
                        None
                    }
                    Some(spec) => self.write_spec(name, &by, spec)?,
                };
                if let (Some(_), Some(pod)) = (held, &write.watched) {
                    self.end_with_pod(name, pod);
                }
                self.put_metadata(name, metadata);
                let object = self.object(name).expect("it was written");
                let session = object.term.as_ref().map(|term| term.session);
                let session = session.and_then(|id| self.session(id));
                Ok(ObjectWritten {
                    object: self.object_view(object),
                    held: held.zip(session.map(|session| session.ttl)),
                })
            }
        }
    }

    fn may(&self, verb: Verb, name: &LeaseName) -> Result<(), Rejection> {
        self.rights.judge(self.principal(), verb, To::Lease(name))
    }

    /// A holder renews and gives back without a right.
    fn may_write(&self, write: &WriteObject, by: &Candidate) -> Result<(), Rejection> {
        if self.is_held_by(&write.name, by) {
            return Ok(());
        }
        let acquire = self.may(Verb::Acquire, &write.name);
        if acquire.is_ok() || !matches!(write.write, ObjectWrite::Delete { revoke: Some(_) }) {
            return acquire;
        }
        self.may(Verb::Revoke, &write.name)
    }

    /// The token, if the writer holds the lease with it from now on.
    fn write_spec(
        &mut self,
        name: &LeaseName,
        by: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<Option<FencingToken>, Rejection> {
        let gives_back = spec.holder.as_str().is_empty();
        let Some(grant) = self.grant_of(name).cloned() else {
            if gives_back {
                return Ok(None);
            }
            self.check_ttl(spec)?;
            self.check_owing(name, &spec.holder, by, duration(spec))?;
            if let Some(obstacle) = self.obstacle_of_new(name) {
                return Err(obstacle);
            }
            self.check_grant(name, spec, None)?;
            return self.begin_term(name, by, spec).map(Some);
        };
        let own = self.is_held_by(name, by);
        // Several processes may be behind a principal.
        let alone = by.pod.is_some();
        if gives_back && own && alone {
            self.end_term(name, grant.session);
            return Ok(None);
        }
        let same = self.session(grant.session).expect("alive").identity == spec.holder;
        let renews = same && !gives_back && (own || self.is_unclaimed(name));
        if !renews || (spec.new_term && !(own && alone)) {
            return Err(self.held(&grant));
        }
        if spec.new_term {
            self.check_ttl(spec)?;
            self.may(Verb::Acquire, name)?;
            let remaining = self.quiet_until.since(self.time);
            if remaining.0 > 0 {
                return Err(Rejection::QuietTime { remaining });
            }
            let at = self.lease_at(name).expect("it is held");
            let waiters = u32::try_from(self.leases[at].queue.len()).unwrap_or(u32::MAX);
            if waiters > 0 {
                return Err(Rejection::Queued { waiters });
            }
            self.check_grant(name, spec, Some(grant.session))?;
            self.end_term(name, grant.session);
            return self.begin_term(name, by, spec).map(Some);
        }
        if !own {
            self.check_owing(name, &spec.holder, by, duration(spec))?;
        }
        self.keep_term(name, grant.session, by, spec)?;
        Ok(Some(grant.token))
    }

    fn is_held_by(&self, name: &LeaseName, by: &Candidate) -> bool {
        let binds = self.binds();
        let term = self.term(name);
        term.is_some_and(|term| is_one(&term.candidate, by, binds))
    }

    /// Whether the term began while nothing was proven of its holder.
    fn is_unclaimed(&self, name: &LeaseName) -> bool {
        self.term(name).is_some_and(|term| {
            let session = self.session(term.session);
            let unowned = session.is_some_and(|session| session.owner.is_none());
            unowned && is_unproven(&term.candidate)
        })
    }

    fn held(&self, grant: &GrantRecord) -> Rejection {
        let holder = Holder {
            session: grant.session,
            identity: self.session(grant.session).expect("alive").identity.clone(),
            token: grant.token,
            data: grant.data.clone(),
        };
        Rejection::Held {
            holder,
            mine: false,
        }
    }

    fn ttl(&self, spec: &ObjectSpec) -> Millis {
        Millis(u64::from(spec.seconds) * u64::from(self.settings.lease_api_factor))
    }

    fn check_ttl(&self, spec: &ObjectSpec) -> Result<(), Rejection> {
        let offered = self.ttl(spec);
        let (min, max) = (self.settings.ttl_min, self.settings.ttl_max);
        match (min..=max).contains(&offered) {
            true => Ok(()),
            false => Err(Rejection::InvalidTtl { offered, min, max }),
        }
    }

    /// Whether there is room for a session and its grant, once `ending` has ended.
    fn check_grant(
        &self,
        name: &LeaseName,
        spec: &ObjectSpec,
        ending: Option<SessionId>,
    ) -> Result<(), Rejection> {
        let known = |open| open == spec.open;
        if self.sessions.iter().any(|session| known(session.open))
            || self.ended.iter().any(|ended| known(ended.open))
        {
            return Err(Rejection::OpenIdUsed);
        }
        self.may_open(Some(name))?;
        self.check_ttl(spec)?;
        let count = (self.sessions.len() + self.ended.len()) as u64;
        if count >= self.settings.sessions_max {
            return Err(Rejection::Limit(Limit::Sessions(
                self.settings.sessions_max,
            )));
        }
        if SessionId::new(self.next_session).is_none() {
            return Err(Rejection::NotReady);
        }
        if !self.token_left() {
            return Err(Rejection::TokensExhausted);
        }
        let owner = self.owner_of_new();
        let ended = ending.and_then(|id| self.session(id)?.owner.clone());
        let same = ended.is_some() && ended == owner;
        if !same || self.counts_idle_names() {
            self.has_room_for(owner.as_ref(), name, usize::from(same))?;
        }
        let full = self.leases.len() as u64 >= self.settings.leases_max;
        if full && self.lease_at(name).is_none() && self.longest_idle().is_none() {
            return Err(Rejection::Limit(Limit::Leases(self.settings.leases_max)));
        }
        Ok(())
    }

    fn begin_term(
        &mut self,
        name: &LeaseName,
        by: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<FencingToken, Rejection> {
        let open = Open {
            id: spec.open,
            secret: spec.secret,
            seen: None,
            ttl: self.ttl(spec),
            identity: spec.holder.clone(),
            acquire: Some(Acquire {
                name: name.clone(),
                wait: None,
                data: HolderData::default(),
                lock_delay: Millis(0),
            }),
        };
        let opened = match self.open(&open) {
            Outcome::Opened(opened) => opened,
            other => panic!("checked before: {other:?}"),
        };
        let token = match opened.acquired {
            Some(Acquired::Granted(granted)) => granted.token,
            refused => {
                self.end_session(opened.session, &SessionEnd::Closed);
                return Err(match refused {
                    Some(Acquired::Refused(why)) => why,
                    _ => Rejection::NotReady,
                });
            }
        };
        self.settle_owing(name, &spec.holder, by);
        let writer = self.writer();
        self.make_object(name, writer.clone());
        let wall = self.wall;
        self.change_object(name, |object| {
            object.seconds = spec.seconds;
            (object.acquired, object.renewed) = (wall, wall);
            object.term = Some(Term {
                session: opened.session,
                candidate: by.clone(),
                pod: None,
            });
            object.is_written_by(writer);
        });
        Ok(token)
    }

    fn keep_term(
        &mut self,
        name: &LeaseName,
        id: SessionId,
        by: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<(), Rejection> {
        let object = self.object(name).expect("it has a term");
        let mut ttl = self.ttl(spec);
        if object.seconds == spec.seconds {
            ttl = ttl.min(self.settings.ttl_max);
        } else {
            self.check_ttl(spec)?;
        }
        let adopts = self.is_unclaimed(name);
        if adopts || self.term(name).is_some_and(|term| term.candidate == *by) {
            self.act_for(id)?;
        }
        let (now, wall) = (self.time, self.wall);
        self.change_object(name, |object| {
            object.seconds = spec.seconds;
            (object.renewed, object.heard) = (wall, now);
            if adopts {
                object.term.as_mut().expect("it has one").candidate = by.clone();
            }
        });
        let (level, term_start) = (self.level, self.term_start);
        let session = self.session_mut(id).expect("alive");
        let promised = session.deadline(term_start);
        session.seen = session.seen.max(now);
        if ttl > session.ttl {
            session.ttl = ttl;
        } else if level >= LEVEL_RESTORE && ttl < session.ttl {
            // The end is the later one of what was promised and what is asked for now.
            let end = promised.max(session.seen.after(ttl));
            session.seen = ClusterTime(end.0 - ttl.0);
            session.ttl = ttl;
        }
        Ok(())
    }

    fn end_with_pod(&mut self, name: &LeaseName, pod: &Pod) {
        let bound = self.term(name).map(|term| term.pod.as_ref());
        if bound.is_some_and(|bound| bound != Some(pod)) {
            self.change_object(name, |object| {
                object.term.as_mut().expect("it has one").pod = Some(pod.clone());
            });
        }
    }

    fn put_metadata(&mut self, name: &LeaseName, metadata: &ObjectMetadata) {
        let writer = self.writer();
        self.make_object(name, writer.clone());
        let object = self.object(name).expect("it was made");
        if object.metadata != *metadata || self.makes_stay(object, metadata) {
            self.change_object(name, |object| {
                object.metadata = metadata.clone();
                object.is_written_by(writer);
            });
        }
    }

    /// Its holder gives it back.
    fn end_term(&mut self, name: &LeaseName, id: SessionId) {
        let at = self.lease_at(name).expect("it is held");
        self.end_grant(at, &EndCause::Released);
        self.line_up();
        self.end_session(id, &SessionEnd::Closed);
    }

    fn delete_object(
        &mut self,
        name: &LeaseName,
        by: &Candidate,
        revoke: Option<&Revoke>,
    ) -> Result<ObjectWritten, Rejection> {
        if self.object(name).is_none() {
            return Err(Rejection::ObjectChanged { present: None });
        }
        match self.grant_of(name).cloned() {
            None => self.may(Verb::Acquire, name)?,
            Some(grant) if self.is_held_by(name, by) && by.pod.is_some() => {
                self.end_term(name, grant.session);
            }
            Some(grant) => {
                let named =
                    revoke.filter(|revoke| revoke.name == *name && revoke.token == grant.token);
                let Some(revoke) = named else {
                    return Err(self.held(&grant));
                };
                self.may(Verb::Revoke, name)?;
                self.revoke(revoke);
            }
        }
        let object = self.object(name).expect("it is there");
        let mut object = self.object_view(object);
        object.version = self.remove_object(name);
        Ok(ObjectWritten { object, held: None })
    }
}

/// How long the writer says that the lease may be believed in.
fn duration(spec: &ObjectSpec) -> Millis {
    Millis(u64::from(spec.seconds) * 1_000)
}
