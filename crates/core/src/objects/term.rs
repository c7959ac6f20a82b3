//! Terms: grants that are made through objects, each in a session of its own.

use ringfence_planted::{Bug, planted};

use super::native::seconds_of;
use super::object::{Candidate, Owing, Term};
use super::owing::Debtor;
use super::write::Done;
use crate::access::change::Mode;
use crate::access::verb::Verb;
use crate::command::{Acquire, ObjectSpec, Open};
use crate::ending::EndKind;
use crate::event::{EndCause, SessionEnd};
use crate::id::SessionId;
use crate::lease::GrantRecord;
use crate::level::LEVEL_RESTORE;
use crate::machine::StateMachine;
use crate::name::{HolderData, Identity, LeaseName};
use crate::outcome::{Acquired, Outcome, Rejection};
use crate::pod::Pod;
use crate::time::Millis;

impl StateMachine {
    fn check_ttl(&self, offered: Millis) -> Result<(), Rejection> {
        let (min, max) = (self.settings().ttl_min, self.settings().ttl_max);
        match offered >= min && offered <= max {
            true => Ok(()),
            false => Err(Rejection::InvalidTtl { offered, min, max }),
        }
    }

    /// Grants a free lease to a candidate, in a session of its own.
    pub(super) fn begin_term(
        &mut self,
        name: &LeaseName,
        candidate: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<Done, Rejection> {
        self.check_ttl(self.settings().lease_api_ttl(spec.seconds))?;
        self.check_owing(name, candidate, spec)?;
        if let Some(obstacle) = self.obstacle_now(None, name) {
            return Err(obstacle);
        }
        let open = self.opening(name, spec);
        self.check_grant(name, &open, None)?;
        self.grant_term(name, candidate, spec, &open)
    }

    /// Ends the term of a holder that has started again, and begins its next one.
    pub(super) fn renew_term(
        &mut self,
        name: &LeaseName,
        grant: &GrantRecord,
        candidate: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<Done, Rejection> {
        self.check_ttl(self.settings().lease_api_ttl(spec.seconds))?;
        self.demand(Verb::Acquire, name)?;
        // What would come before it if the lease were free.
        let remaining = self.header.quiet_until.since(self.time());
        if remaining.0 > 0 {
            return Err(Rejection::QuietTime { remaining });
        }
        let waiters = self.leases.get(name).map_or(0, |lease| lease.waiters());
        if waiters > 0 {
            return Err(Rejection::Queued { waiters });
        }
        let open = self.opening(name, spec);
        self.check_grant(name, &open, Some(grant.session))?;
        self.end_term(name, grant.session);
        self.grant_term(name, candidate, spec, &open)
    }

    /// Whether all limits allow the session and its grant, after that of `ending` has ended. Asked
    /// before anything changes: a refusal has no effect.
    fn check_grant(
        &self,
        name: &LeaseName,
        open: &Open,
        ending: Option<SessionId>,
    ) -> Result<(), Rejection> {
        if self.knows_open(&open.id) {
            return Err(Rejection::OpenIdUsed);
        }
        let owner = self.owner_of_new(Some(name))?;
        self.check_open(open, None, None)?;
        if SessionId::new(self.header.next_session).is_none() {
            return Err(Rejection::NotReady);
        }
        if self.header.tokens.is_exhausted() {
            return Err(Rejection::TokensExhausted);
        }
        let ended = ending.and_then(|id| self.sessions.get(&id)?.owner.as_ref());
        let same = ended.is_some() && ended == owner.as_ref();
        if !same || self.is_at(LEVEL_RESTORE) {
            self.check_principal_leases(owner.as_ref(), name, same)?;
        }
        self.check_names(name)
    }

    /// Opens the session and grants the lease to it; everything was judged before.
    fn grant_term(
        &mut self,
        name: &LeaseName,
        candidate: &Candidate,
        spec: &ObjectSpec,
        open: &Open,
    ) -> Result<Done, Rejection> {
        let Outcome::Opened(opened) = self.open(open, None)? else {
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
            pod: None,
        };
        let (wall, binds) = (self.wall(), self.access.mode() == Mode::Enforced);
        let debtor = Debtor {
            identity: &spec.holder,
            candidate,
            binds,
        };
        self.state.objects.owing.settle(name, debtor);
        let owner = self.object_owner();
        self.make_object(name, owner.clone());
        self.change_object(name, |object| {
            object.seconds = spec.seconds;
            (object.acquired, object.renewed) = (wall, wall);
            object.term = Some(term);
            object.stay(owner);
        });
        Ok(Done::Held(granted.token))
    }

    /// Refuses a candidate that lost its last term and may not know. The first refusal counts, and is
    /// noted; so it is the only one that changes anything.
    pub(super) fn check_owing(
        &mut self,
        name: &LeaseName,
        candidate: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<(), Rejection> {
        let now = self.time();
        let duration = Millis::from_secs(u64::from(spec.seconds));
        let debtor = Debtor {
            identity: &spec.holder,
            candidate,
            binds: self.access.mode() == Mode::Enforced,
        };
        let owing = &mut self.state.objects.owing;
        let note = owing.of(name, debtor);
        let owed = note.and_then(|note| note.remaining(now, duration));
        let Some(remaining) = owed.filter(|_| !planted(Bug::OwingForgotten)) else {
            return Ok(());
        };
        owing.refused(name, debtor, now.after(duration));
        Err(Rejection::Owing { remaining })
    }

    pub(super) fn keep_term(
        &mut self,
        name: &LeaseName,
        session: SessionId,
        candidate: &Candidate,
        spec: &ObjectSpec,
    ) -> Result<(), Rejection> {
        let mut ttl = self.settings().lease_api_ttl(spec.seconds);
        let object = self.state.objects.get(name);
        if object.is_some_and(|object| object.seconds == spec.seconds) {
            // As any session, a term lives on with what it was given when limits are lowered, and
            // when the factor is raised beyond them.
            ttl = ttl.min(self.settings().ttl_max);
        } else {
            self.check_ttl(ttl)?;
        }
        let adopts = self.is_unclaimed(name);
        let own = self.term_of(name).map(|term| &term.candidate) == Some(candidate);
        // Where rights do not bind, another principal may renew; the session is not its own.
        if adopts || own {
            self.check_owner(session)?;
        }
        let (now, wall) = (self.time(), self.wall());
        self.change_object(name, |object| {
            object.seconds = spec.seconds;
            (object.renewed, object.heard) = (wall, now);
            if let Some(term) = object.term.as_mut().filter(|_| adopts) {
                term.candidate = candidate.clone();
            }
        });
        // Older releases let the time of a session grow only.
        let shortens = self.is_at(LEVEL_RESTORE) && !planted(Bug::ShorterDurationIgnored);
        let term_start = self.header.term_start;
        let before = self.change_session(session, |session| {
            let before = session.ttl();
            let ttl = if shortens { ttl } else { ttl.max(before) };
            session.keep_alive_with(now, ttl, term_start);
            (before, session.ttl())
        });
        if let Some((before, after)) = before
            && before != after
        {
            self.ttls.remove(before);
            self.ttls.insert(after);
        }
        Ok(())
    }

    /// The term ends with this Pod from now on, if a leader sees the Pod's end.
    pub(super) fn bind_term(&mut self, name: &LeaseName, pod: &Pod) {
        let term = self.term_of(name);
        let another = term.is_some_and(|term| term.pod.as_ref() != Some(pod));
        if another && !planted(Bug::PodOfTermForgotten) {
            self.change_object(name, |object| {
                if let Some(term) = &mut object.term {
                    term.pod = Some(pod.clone());
                }
            });
        }
    }

    /// Ends a term at its holder's wish.
    pub(super) fn end_term(&mut self, name: &LeaseName, session: SessionId) {
        self.end_grant(name, &EndCause::Released, EndKind::Graceful);
        self.end_session(session, &SessionEnd::Closed);
    }

    /// Takes notice of the end of a grant whose name has an object.
    pub(crate) fn object_freed(&mut self, name: &LeaseName, identity: &Identity, cause: &EndCause) {
        let willing = matches!(
            cause,
            EndCause::Released | EndCause::Closed | EndCause::Transferred { .. }
        );
        let mut ended = None;
        let mut native = false;
        let mut seconds = 0;
        self.change_object(name, |object| {
            (ended, native) = (object.term.take(), object.native);
            seconds = object.seconds;
        });
        if native {
            self.freed.push(name.clone());
        }
        if let Some(term) = ended.filter(|_| !willing) {
            let note = Owing {
                identity: identity.clone(),
                candidate: term.candidate,
                lost: self.header.versions,
                until: planted(Bug::OwingFromTheLoss)
                    .then(|| self.time().after(Millis::from_secs(seconds.into()))),
            };
            let shared = self.is_at(LEVEL_RESTORE);
            self.state.objects.owing.add(name, note, shared);
        }
    }

    /// Takes notice of a grant: its name has an object from now on, if it is one of Kubernetes. The
    /// first grant makes no transition.
    pub(crate) fn object_granted(&mut self, name: &LeaseName, ttl: Millis) {
        self.make_native_object(name);
        let (now, wall) = (self.time(), self.wall());
        self.change_object(name, |object| {
            // Every holder before has left a duration.
            if object.seconds > 0 {
                object.transitions = object.transitions.saturating_add(1);
            }
            object.seconds = seconds_of(ttl);
            (object.acquired, object.renewed) = (wall, wall);
            object.heard = now;
        });
    }

    /// The session of a term, with the grant in it.
    fn opening(&self, name: &LeaseName, spec: &ObjectSpec) -> Open {
        let acquire = Acquire {
            name: name.clone(),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        };
        Open {
            id: spec.open,
            secret: spec.secret,
            seen: None,
            ttl: self.settings().lease_api_ttl(spec.seconds),
            identity: spec.holder.clone(),
            acquire: Some(acquire),
        }
    }
}
