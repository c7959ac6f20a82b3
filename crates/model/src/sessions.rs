//! Sessions: how they begin, are kept alive, and end.

use ringfence_core::snapshot::Answer;
use ringfence_core::{
    Acquired, Ask, ClusterTime, EndCause, Event, Evict, FencingToken, LeaseName, Limit, LostGrant,
    Millis, Mode, OPEN_AGE_MAX, Open, OpenForPod, Opened, Outcome, Pod, PodEnded, PodSeen,
    Rejection, Renew, Renewed, RequestNumber, Revoke, Secret, SessionEnd, SessionId, WaitEnd,
};

use super::rights::named;
use super::{EndedSession, Kept, Model, Session};

impl Model {
    pub(super) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.iter().find(|session| session.id == id)
    }

    pub(super) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.id == id)
    }

    pub(super) fn ended(&self, id: SessionId) -> Option<&EndedSession> {
        self.ended.iter().find(|ended| ended.id == id)
    }

    /// Whether rights bind and it is another principal's than the caller's.
    fn is_of_another(&self, ended: &EndedSession) -> bool {
        let caller = Some(named(self.principal()));
        self.rights.mode == Mode::Enforced && ended.owner.is_some() && ended.owner != caller
    }

    /// Whether the session is alive and this is its secret. Where rights bind, its end is for its
    /// secret and its principal alone.
    pub(super) fn authenticate(&self, id: SessionId, secret: &Secret) -> Result<(), Rejection> {
        match self.session(id) {
            Some(session) if session.secret == *secret => Ok(()),
            Some(_) => Err(Rejection::WrongSecret),
            None => match self.ended(id) {
                Some(ended) if ended.secret != *secret && self.rights.mode == Mode::Enforced => {
                    Err(Rejection::WrongSecret)
                }
                Some(ended) if self.is_of_another(ended) => Err(Rejection::OtherPrincipal),
                ended => Err(Rejection::SessionExpired {
                    cause: ended.map(|ended| ended.cause.clone()),
                }),
            },
        }
    }

    pub(super) fn open(&mut self, open: &Open) -> Outcome {
        self.open_any(open, None)
    }

    pub(super) fn open_for_pod(&mut self, open: &OpenForPod) -> Outcome {
        let plain = Open {
            id: open.id,
            secret: open.secret,
            seen: open.seen,
            ttl: Millis::FOREVER,
            identity: open.identity.clone(),
            acquire: None,
        };
        self.open_any(&plain, Some(&open.pod))
    }

    /// The Pod has ended, and with it every session that is bound to it.
    pub(super) fn pod_ended(&mut self, ended: &PodEnded) -> Outcome {
        let bound = self.sessions.iter().filter_map(|session| {
            let pod = session.pod.as_ref()?;
            (*pod.uid() == ended.uid).then(|| (pod.container().to_owned(), session.id))
        });
        let mut bound: Vec<(String, SessionId)> = bound.collect();
        bound.sort();
        for (_, id) in bound {
            let (uid, seen) = (ended.uid.clone(), ended.seen);
            self.end_session(id, &SessionEnd::PodEnded { uid, seen });
        }
        for id in self.terms_of_pod(&ended.uid) {
            let (uid, seen) = (ended.uid.clone(), ended.seen);
            self.end_session(id, &SessionEnd::PodEnded { uid, seen });
        }
        Outcome::Done
    }

    fn open_any(&mut self, open: &Open, pod: Option<&Pod>) -> Outcome {
        if let Some(known) = self.sessions.iter().find(|known| known.open == open.id) {
            if known.secret != open.secret {
                return Outcome::Rejected(Rejection::OpenIdUsed);
            }
            let id = known.id;
            return match self.act_for(id) {
                Ok(()) => self.open_again(id, open),
                Err(refused) => Outcome::Rejected(refused),
            };
        }
        if self.ended.iter().any(|ended| ended.open == open.id) {
            return Outcome::Rejected(Rejection::OpenIdUsed);
        }
        let first = open.acquire.as_ref().map(|acquire| &acquire.name);
        if let Err(refused) = self.may_open(first) {
            return Outcome::Rejected(refused);
        }
        let (min, max) = (self.settings.ttl_min, self.settings.ttl_max);
        if pod.is_none() && (open.ttl < min || open.ttl > max) {
            let offered = open.ttl;
            return Outcome::Rejected(Rejection::InvalidTtl { offered, min, max });
        }
        if let Some(seen) = open
            .seen
            .filter(|seen| seen.after(OPEN_AGE_MAX) <= self.time)
        {
            let now = self.time;
            return Outcome::Rejected(Rejection::OpenTooOld { seen, now });
        }
        // The late `Open` of a process that is over ends no session.
        if let Some(former) = pod.and_then(|pod| self.bound_to(pod)) {
            let known = open.seen.unwrap_or(ClusterTime(0));
            if open.seen.is_none() || known <= former.seen {
                let now = self.time;
                return Outcome::Rejected(Rejection::OpenTooOld { seen: known, now });
            }
        }
        let count = (self.sessions.len() + self.ended.len()) as u64;
        if count >= self.settings.sessions_max {
            let limit = Limit::Sessions(self.settings.sessions_max);
            return Outcome::Rejected(Rejection::Limit(limit));
        }
        self.open_new(open, pod)
    }

    pub(super) fn bound_to(&self, pod: &Pod) -> Option<&Session> {
        let same = |session: &&Session| {
            let bound = session.pod.as_ref();
            bound.is_some_and(|bound| bound.is_same_container(pod))
        };
        self.sessions.iter().find(same)
    }

    /// A repeat finds the session that the first one opened.
    fn open_again(&mut self, id: SessionId, open: &Open) -> Outcome {
        let now = self.time;
        let session = self.session_mut(id).expect("found a moment ago");
        session.seen = session.seen.max(now);
        let ttl = session.ttl;
        let acquire = open.acquire.clone();
        let acquired = acquire.map(|acquire| self.first_again(id, Ask::Acquire(acquire)));
        Outcome::Opened(Opened {
            session: id,
            ttl,
            acquired,
            repeated: true,
        })
    }

    /// How the acquire stands that a session was opened with.
    fn first_again(&self, id: SessionId, ask: Ask) -> Acquired {
        let number = RequestNumber::FIRST;
        let session = self.session(id).expect("found a moment ago");
        let kept = session.answers.iter().find(|kept| kept.number == number);
        let lowest = session.lowest;
        let other = Acquired::Refused(Rejection::RequestMismatch { number });
        let waits = kept.is_some_and(|kept| match (&kept.answer, &ask) {
            (Answer::Waiting { name }, Ask::Acquire(acquire)) => *name == acquire.name,
            _ => false,
        });
        match kept {
            _ if waits => self.standing(id, number).unwrap_or(other),
            None if number < lowest => {
                Acquired::Refused(Rejection::StaleRequest { number, lowest })
            }
            Some(kept) if kept.ask.is_none() || kept.ask == Some(ask) => {
                self.standing(id, number).unwrap_or(other)
            }
            _ => other,
        }
    }

    fn open_new(&mut self, open: &Open, pod: Option<&Pod>) -> Outcome {
        let id = SessionId::new(self.next_session).expect("numbers begin at 1");
        self.next_session += 1;
        if let Some(pod) = pod
            && let Some(former) = self.bound_to(pod).map(|session| session.id)
        {
            let (uid, seen) = (pod.uid().clone(), PodSeen::Restarted);
            self.end_session(former, &SessionEnd::PodEnded { uid, seen });
        }
        let owner = self.owner_of_new();
        self.sessions.push(Session {
            id,
            owner,
            open: open.id,
            secret: open.secret,
            identity: open.identity.clone(),
            ttl: open.ttl,
            seen: self.time,
            lowest: RequestNumber::FIRST,
            answers: Vec::new(),
            lost: Vec::new(),
            pod: pod.cloned(),
        });
        self.events.push(Event::SessionOpened { session: id });
        if let Some(ask) = &open.acquire {
            let answer = self.acquire(id, RequestNumber::FIRST, ask);
            let kept = Kept {
                number: RequestNumber::FIRST,
                ask: Some(Ask::Acquire(ask.clone())),
                answer,
            };
            self.session_mut(id)
                .expect("just opened")
                .answers
                .push(kept);
        }
        let acquired = open.acquire.as_ref();
        Outcome::Opened(Opened {
            session: id,
            ttl: open.ttl,
            acquired: acquired.and_then(|_| self.standing(id, RequestNumber::FIRST)),
            repeated: false,
        })
    }

    pub(super) fn close(&mut self, id: SessionId, secret: &Secret) -> Outcome {
        let known = self.session(id).map(|session| session.secret);
        let known = known.or(self.ended(id).map(|ended| ended.secret));
        if known.is_some_and(|known| known != *secret) {
            return Outcome::Rejected(Rejection::WrongSecret);
        }
        if self
            .ended(id)
            .is_some_and(|ended| self.is_of_another(ended))
        {
            return Outcome::Rejected(Rejection::OtherPrincipal);
        }
        if let Err(refused) = self.act_for(id) {
            return Outcome::Rejected(refused);
        }
        self.end_session(id, &SessionEnd::Closed);
        let cause = self.ended(id).map(|ended| ended.cause.clone());
        Outcome::Closed { cause }
    }

    pub(super) fn evict(&mut self, evict: &Evict) -> Outcome {
        if self.knows_repeats() && evict.session.get() >= self.next_session {
            return Outcome::Rejected(Rejection::SessionExpired { cause: None });
        }
        let cause = SessionEnd::Evicted {
            operator: self.operator(&evict.operator),
            reason: evict.reason.clone(),
        };
        self.end_session(evict.session, &cause);
        let cause = self.ended(evict.session).map(|ended| ended.cause.clone());
        Outcome::Closed { cause }
    }

    /// Ends a session with its grants, waits and losses, if it is alive.
    pub(super) fn end_session(&mut self, id: SessionId, why: &SessionEnd) {
        if self.session(id).is_none() {
            return;
        }
        let cause = match why.clone() {
            SessionEnd::Closed => EndCause::Closed,
            SessionEnd::Expired => EndCause::Expired,
            SessionEnd::Evicted { operator, reason } => EndCause::Evicted { operator, reason },
            SessionEnd::PodEnded { uid, seen } => EndCause::PodEnded { uid, seen },
        };
        // Who evicts what is bound to a Pod vouches for the process's end.
        let bound = self
            .session(id)
            .is_some_and(|session| session.pod.is_some());
        let evicted = matches!(why, SessionEnd::Evicted { .. }) && !bound;
        let mut waits: Vec<(RequestNumber, LeaseName)> = Vec::new();
        for lease in &self.leases {
            let own = lease.queue.iter().filter(|waiter| waiter.session == id);
            waits.extend(own.map(|waiter| (waiter.request, lease.name.clone())));
        }
        waits.sort();
        for (request, name) in waits {
            self.leave_queue(id, request, &name, WaitEnd::SessionEnded);
        }
        for at in 0..self.leases.len() {
            let grant = self.leases[at].grant.clone();
            if let Some(grant) = grant.filter(|grant| grant.session == id) {
                self.end_grant(at, &cause);
                if evicted {
                    self.await_belief(at, id, grant.token);
                }
                self.line_up();
            }
        }
        let position = self.sessions.iter().position(|s| s.id == id);
        let session = self.sessions.remove(position.expect("alive"));
        self.ended.push(EndedSession {
            id,
            open: session.open,
            secret: session.secret,
            cause: why.clone(),
            at: self.time,
            owner: session.owner,
            released: None,
        });
        self.events.push(Event::SessionEnded {
            session: id,
            cause: why.clone(),
        });
        // Who closed has stopped believing, and who ran out of time cannot believe. Who was evicted
        // may, for as long as was said when the grant was revoked.
        for lost in session.lost {
            if !evicted {
                self.aware(id, lost.token);
            }
            self.loss_counts_no_more(&lost);
        }
    }

    /// The holder of a lost grant cannot believe in it any more.
    fn aware(&mut self, id: SessionId, token: FencingToken) {
        for at in 0..self.leases.len() {
            let waited_for = self.leases[at].unaware;
            if waited_for.is_some_and(|holder| (holder.session, holder.token) == (id, token)) {
                self.leases[at].unaware = None;
                self.unblock_if_over(at);
            }
        }
        self.line_up();
    }

    pub(super) fn renew(&mut self, renew: &Renew) -> Outcome {
        let now = self.time;
        for &(id, token) in &renew.acknowledged {
            let Some(session) = self.session_mut(id) else {
                continue;
            };
            let known = session.lost.iter().position(|lost| lost.token == token);
            let known = known.map(|at| session.lost.remove(at));
            self.aware(id, token);
            if let Some(lost) = known {
                self.loss_counts_no_more(&lost);
            }
        }
        let mut renewed = Renewed {
            time: now,
            ended: Vec::new(),
            lost: Vec::new(),
        };
        for &id in &renew.sessions {
            let owner = self.session(id).and_then(|session| session.owner.as_ref());
            let banned = owner.is_some() && self.rights.ban(owner);
            if banned && self.rights.mode == Mode::Enforced {
                renewed.ended.push(id);
                continue;
            }
            match self.session_mut(id) {
                None => renewed.ended.push(id),
                Some(session) => {
                    session.seen = session.seen.max(now);
                    if !session.lost.is_empty() {
                        renewed.lost.push((id, session.lost.clone()));
                    }
                }
            }
        }
        self.show_renewals(&renew.sessions);
        Outcome::Renewed(renewed)
    }

    pub(super) fn revoke(&mut self, revoke: &Revoke) -> Outcome {
        let at = match self.in_force(&revoke.name, revoke.token) {
            Ok(at) => at,
            Err(refused) => return self.revoke_again(revoke, refused),
        };
        let cause = EndCause::Revoked {
            operator: self.operator(&revoke.operator),
            reason: revoke.reason.clone(),
        };
        let session = self.leases[at].grant.as_ref().expect("in force").session;
        self.end_grant(at, &cause);
        if !revoke.now {
            self.await_belief(at, session, revoke.token);
        }
        let lost = LostGrant {
            name: revoke.name.clone(),
            token: revoke.token,
            cause,
        };
        self.session_mut(session).expect("alive").lost.push(lost);
        self.leases[at].loss_counts = true;
        Outcome::Done
    }

    /// Of a grant that is not in force: it may be the one that was revoked last.
    fn revoke_again(&mut self, revoke: &Revoke, refused: Rejection) -> Outcome {
        let at = self.lease_at(&revoke.name);
        let Some(at) = at.filter(|&at| self.leases[at].revoked == Some(revoke.token)) else {
            return Outcome::Rejected(self.as_shown(self.principal(), refused));
        };
        if let Some(holder) = self.leases[at].unaware.filter(|_| revoke.now) {
            self.aware(holder.session, revoke.token);
        }
        Outcome::Done
    }
}
