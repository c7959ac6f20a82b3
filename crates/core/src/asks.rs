//! What clients ask: to open and close sessions, and the numbered requests of a session.

use alloc::vec::Vec;

use ringfence_planted::{Bug, planted};

use crate::command::{Ask, Open, OpenForPod, Request};
use crate::event::{EndCause, Event, SessionEnd, WaitEnd};
use crate::id::{FencingToken, RequestNumber, Secret, SessionId};
use crate::level::LEVEL_REPEATS;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::outcome::{Cancelled, Limit, Opened, Outcome, Rejection};
use crate::pod::{Pod, PodSeen};
use crate::requests::{Admission, fingerprint};
use crate::session::Session;
use crate::settings::OPEN_AGE_MAX;
use crate::snapshot::{Answer, ClosingRelease};
use crate::time::{ClusterTime, Millis};

impl StateMachine {
    /// Opens a session, or finds the one that this very `Open` made before.
    pub(crate) fn open(&mut self, open: &Open, events: &mut Vec<Event>) -> Outcome {
        self.open_bound(open, None, events)
    }

    /// The same for a session that lasts as long as a Pod.
    pub(crate) fn open_for_pod(&mut self, open: &OpenForPod, events: &mut Vec<Event>) -> Outcome {
        let plain = Open {
            id: open.id,
            secret: open.secret,
            seen: open.seen,
            ttl: Millis::FOREVER,
            identity: open.identity.clone(),
            acquire: None,
        };
        self.open_bound(&plain, Some(&open.pod), events)
    }

    fn open_bound(&mut self, open: &Open, pod: Option<&Pod>, events: &mut Vec<Event>) -> Outcome {
        if let Some(&id) = self.opens.get(&open.id)
            && !planted(Bug::OpenRepeatedOpensAgain)
        {
            return self.reopen(id, open, events);
        }
        if let Err(rejection) = self.check_open(open, pod) {
            return Outcome::Rejected(rejection);
        }
        let Some(id) = SessionId::new(self.next_session) else {
            return Outcome::Rejected(Rejection::NotReady);
        };
        self.next_session += 1;
        let (open_id, identity) = ((open.id, open.secret), open.identity.clone());
        let mut session = Session::new(open_id, identity, open.ttl, self.time);
        if let Some(pod) = pod {
            self.end_former_life(pod, events);
            session.bind(pod.clone());
            self.pods.insert(pod.key(), id);
        }
        session.armed = session.deadline(self.term_start);
        if session.pod().is_none() {
            self.deadlines.insert_session(session.armed, id);
            self.ttls.insert(session.ttl);
        }
        self.sessions.insert(id, session);
        self.opens.insert(open.id, id);
        events.push(Event::SessionOpened { session: id });

        let ask = open
            .acquire
            .as_ref()
            .map(|acquire| Ask::Acquire(acquire.clone()));
        if let Some(ask) = &ask {
            self.carry_out_ask(id, RequestNumber::FIRST, ask, events);
        }
        self.opened(id, open, false)
    }

    /// Ends the session that was bound to this very container. Its process is over, since one at a
    /// time is behind a container; without this its successor would wait for it for ever.
    fn end_former_life(&mut self, pod: &Pod, events: &mut Vec<Event>) {
        if let Some(&former) = self.pods.get(&pod.key()) {
            let cause = SessionEnd::PodEnded {
                uid: pod.uid().clone(),
                seen: PodSeen::Restarted,
            };
            self.end_session(former, &cause, events);
        }
    }

    /// The last sign of life of the session that is bound to this very container.
    fn former_life(&self, pod: &Pod) -> Option<ClusterTime> {
        let former = *self.pods.get(&pod.key())?;
        self.sessions.get(former).map(|session| session.seen)
    }

    fn check_open(&self, open: &Open, pod: Option<&Pod>) -> Result<(), Rejection> {
        let (min, max) = (self.settings.ttl_min, self.settings.ttl_max);
        if pod.is_none() && (open.ttl < min || open.ttl > max) {
            return Err(Rejection::InvalidTtl {
                offered: open.ttl,
                min,
                max,
            });
        }
        // Ids are forgotten OPEN_AGE_MAX after the session's end, which is not before `seen`: at
        // that very time the duplicate has to be too old already.
        if let Some(seen) = open.seen
            && seen.after(OPEN_AGE_MAX) <= self.time
        {
            return Err(Rejection::OpenTooOld {
                seen,
                now: self.time,
            });
        }
        // A process that runs now has seen a later time than the one before it lived to see. What has
        // not may be the late `Open` of a process that is over, and must not end its successor.
        if let Some(former) = pod.and_then(|pod| self.former_life(pod))
            && open.seen.is_none_or(|seen| seen <= former)
        {
            return Err(Rejection::OpenTooOld {
                seen: open.seen.unwrap_or_default(),
                now: self.time,
            });
        }
        let max = self.settings.sessions_max;
        if self.sessions.len() + self.ended.len() >= max {
            return Err(Rejection::Limit(Limit::Sessions(max)));
        }
        Ok(())
    }

    fn reopen(&mut self, id: SessionId, open: &Open, events: &mut Vec<Event>) -> Outcome {
        self.end_if_due(id, events);
        let now = self.time;
        match self.sessions.get_mut(id) {
            Some(session) if session.secret.proves(&open.secret) => {
                session.seen = now;
                self.opened(id, open, true)
            }
            _ => Outcome::Rejected(Rejection::OpenIdUsed),
        }
    }

    fn opened(&self, id: SessionId, open: &Open, repeated: bool) -> Outcome {
        let Some(session) = self.sessions.get(id) else {
            return Outcome::Rejected(Rejection::OpenIdUsed);
        };
        let first = session.requests.get(RequestNumber::FIRST);
        let acquired = match (&open.acquire, first) {
            (Some(_), Some(answer)) => self.standing_of(&answer),
            _ => None,
        };
        Outcome::Opened(Opened {
            session: id,
            ttl: session.ttl,
            acquired,
            repeated,
        })
    }

    /// Ends a session that is due but was not reached yet, so that its own late request finds it
    /// ended.
    fn end_if_due(&mut self, id: SessionId, events: &mut Vec<Event>) {
        let due = |session: &Session| !session.lives(self.term_start, self.time);
        if self.sessions.get(id).is_some_and(due) {
            self.end_session(id, &SessionEnd::Expired, events);
        }
    }

    pub(crate) fn close(
        &mut self,
        id: SessionId,
        secret: &Secret,
        events: &mut Vec<Event>,
    ) -> Outcome {
        self.end_if_due(id, events);
        match self.authenticate(id, secret) {
            Ok(()) => {
                self.end_session(id, &SessionEnd::Closed, events);
                Outcome::Closed {
                    cause: Some(SessionEnd::Closed),
                }
            }
            Err(Rejection::SessionExpired { cause }) => {
                let remembered = self.ended.get(id);
                if remembered.is_some_and(|ended| !ended.secret.proves(secret)) {
                    return Outcome::Rejected(Rejection::WrongSecret);
                }
                Outcome::Closed { cause }
            }
            Err(other) => Outcome::Rejected(other),
        }
    }

    /// A numbered request: answered from memory if it was answered before.
    pub(crate) fn request(&mut self, request: &Request, events: &mut Vec<Event>) -> Outcome {
        let Request {
            session: id,
            secret,
            number,
            lowest,
            ask,
        } = request;
        let (now, term_start) = (self.time, self.term_start);
        let admitted = |session: &&mut Session| {
            (session.lives(term_start, now) || planted(Bug::LateRequestFirst))
                && (session.secret.proves(secret) || planted(Bug::SecretNotChecked))
        };
        let Some(session) = self.sessions.get_mut(*id).filter(admitted) else {
            self.end_if_due(*id, events);
            if let Some(token) = self.released_with(request) {
                return Outcome::Released { token };
            }
            let refused = self.authenticate(*id, secret).err();
            let cause = None;
            return Outcome::Rejected(refused.unwrap_or(Rejection::SessionExpired { cause }));
        };
        session.seen = now;
        match session.requests.admit(*number, *lowest, fingerprint(ask)) {
            Admission::New => self.carry_out_ask(*id, *number, ask, events),
            Admission::Refused(rejection) => Outcome::Rejected(rejection),
            Admission::Repeat(answer) => self.answer(&answer),
        }
    }

    /// The token of the release that ended the session, if this is its repeat: it is answered as the
    /// first try was.
    fn released_with(&self, request: &Request) -> Option<FencingToken> {
        let ended = self.ended.get(request.session)?;
        let release = ended.release.as_ref()?;
        let same = ended.secret.proves(&request.secret)
            && release.number == request.number
            && release.fingerprint == fingerprint(&request.ask);
        same.then_some(release.token)
    }

    fn carry_out_ask(
        &mut self,
        id: SessionId,
        number: RequestNumber,
        ask: &Ask,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let done = match ask {
            Ask::Acquire(acquire) => self.acquire(id, number, acquire, events),
            Ask::Cancel { number } => self.cancel(id, *number, events).map(Answer::CancelDone),
            Ask::Release { name, token, .. } => self.release(id, name, *token, events),
            Ask::Transfer { name, token, to } => self.transfer(id, name, *token, *to, events),
        };
        let answer = done.unwrap_or_else(Answer::Refused);
        let outcome = self.answer(&answer);
        let closing = matches!(ask, Ask::Release { close: true, .. });
        if closing && let Answer::Released { token } = answer {
            self.end_session(id, &SessionEnd::Closed, events);
            if self.is_at(LEVEL_REPEATS) {
                let release = ClosingRelease {
                    number,
                    fingerprint: fingerprint(ask),
                    token,
                };
                self.ended.remember_release(id, release);
            }
        } else if let Some(session) = self.sessions.get_mut(id)
            && !(planted(Bug::RefusalsNotRemembered) && matches!(answer, Answer::Refused(_)))
        {
            session.requests.remember(number, fingerprint(ask), answer);
        }
        outcome
    }

    /// An answer as the outcome of the request that asks for it now.
    fn answer(&self, answer: &Answer) -> Outcome {
        match answer {
            Answer::Refused(rejection) => Outcome::Rejected(rejection.clone()),
            Answer::Cancelled { name: None } => Outcome::Rejected(Rejection::RequestVoided),
            Answer::Released { token } => Outcome::Released { token: *token },
            Answer::Transferred { to, token } => Outcome::Transferred {
                to: *to,
                token: *token,
            },
            Answer::CancelDone(cancelled) => Outcome::Cancelled(self.cancelled_now(cancelled)),
            Answer::Granted { .. }
            | Answer::Waiting { .. }
            | Answer::Ended { .. }
            | Answer::TimedOut { .. }
            | Answer::Cancelled { name: Some(_) } => match self.standing_of(answer) {
                Some(acquired) => Outcome::Acquired(acquired),
                // `standing_of` knows each of these five.
                None => Outcome::Rejected(Rejection::NotReady),
            },
        }
    }

    /// A repeated cancel of a request that had been granted: the lease may have been given back
    /// since.
    fn cancelled_now(&self, cancelled: &Cancelled) -> Cancelled {
        match cancelled {
            Cancelled::Granted { name, token } => {
                let current = self
                    .leases
                    .get(name)
                    .and_then(|lease| lease.grant.as_deref());
                if current.is_some_and(|grant| grant.token == *token) {
                    cancelled.clone()
                } else {
                    Cancelled::Settled
                }
            }
            Cancelled::Removed | Cancelled::Settled | Cancelled::Voided => cancelled.clone(),
        }
    }

    fn cancel(
        &mut self,
        id: SessionId,
        target: RequestNumber,
        events: &mut Vec<Event>,
    ) -> Result<Cancelled, Rejection> {
        let Some(session) = self.sessions.get_mut(id) else {
            return Ok(Cancelled::Settled);
        };
        Ok(match session.requests.get(target) {
            Some(Answer::Waiting { name }) => {
                let name = Some(name);
                session.requests.settle(target, Answer::Cancelled { name });
                if let Some(wait) = session.remove_wait(target) {
                    self.remove_waiter(&wait, events, WaitEnd::Cancelled, id);
                }
                Cancelled::Removed
            }
            Some(Answer::Granted { name, token }) => Cancelled::Granted { name, token },
            Some(_) => Cancelled::Settled,
            None if planted(Bug::CancelBeforeItsRequest) => Cancelled::Voided,
            None if session.requests.can_void(target) => {
                session
                    .requests
                    .remember(target, 0, Answer::Cancelled { name: None });
                Cancelled::Voided
            }
            None if target < session.requests.lowest() => Cancelled::Settled,
            // It is not certain that it will not come.
            None => {
                return Err(Rejection::TooManyUnconfirmed {
                    number: target,
                    lowest: session.requests.lowest(),
                });
            }
        })
    }

    fn release(
        &mut self,
        id: SessionId,
        name: &LeaseName,
        token: FencingToken,
        events: &mut Vec<Event>,
    ) -> Result<Answer, Rejection> {
        self.check_holder(id, name, token)?;
        self.end_grant(name, &EndCause::Released, events);
        Ok(Answer::Released { token })
    }

    /// Whether the session holds the lease with this very token.
    fn check_holder(
        &self,
        id: SessionId,
        name: &LeaseName,
        offered: FencingToken,
    ) -> Result<(), Rejection> {
        let grant = self
            .leases
            .get(name)
            .and_then(|lease| lease.grant.as_deref());
        match grant {
            Some(_) if planted(Bug::ReleaseByName) => Ok(()),
            Some(grant) if grant.token == offered && grant.session == id => Ok(()),
            Some(grant) if grant.token == offered => Err(Rejection::NotHolder {
                name: name.clone(),
                offered,
            }),
            other => {
                let current = other.map(|grant| grant.token);
                Err(Rejection::StaleToken {
                    name: name.clone(),
                    offered,
                    current,
                })
            }
        }
    }

    /// Hands a lease over in one step. That the target waits for it is its consent, and means that
    /// a process there will notice.
    fn transfer(
        &mut self,
        id: SessionId,
        name: &LeaseName,
        token: FencingToken,
        to: Option<SessionId>,
        events: &mut Vec<Event>,
    ) -> Result<Answer, Rejection> {
        self.check_holder(id, name, token)?;
        let to = to.filter(|_| !planted(Bug::TransferIgnoresTarget));
        let not_waiting = || Rejection::NotWaiting { name: name.clone() };
        let (now, term_start) = (self.time, self.term_start);
        let lease = self.leases.get(name).ok_or_else(not_waiting)?;
        let place = match to {
            // A session knows its own places; the queue may be 100,000 long.
            Some(to) => self.sessions.get(to).and_then(|to| to.first_place(name)),
            None => lease.queue.first().map(|(place, _)| *place),
        };
        let place = place.ok_or_else(not_waiting)?;
        let waiter = lease.queue.get(&place).ok_or_else(not_waiting)?;
        let to = waiter.session;
        let alive = |session: &Session| session.lives(term_start, now);
        if waiter.until <= now || !self.sessions.get(to).is_some_and(alive) {
            return Err(not_waiting());
        }
        if self.counter >= FencingToken::MAX {
            return Err(Rejection::TokensExhausted);
        }
        self.end_grant(name, &EndCause::Transferred { to }, events);
        let token = self.grant_to_waiter(name, place, events);
        let token = token.ok_or(Rejection::TokensExhausted)?;
        Ok(Answer::Transferred { to, token })
    }
}
