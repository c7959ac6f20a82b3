//! To open and to close a session.

use ringfence_planted::{Bug, planted};

use crate::answer::Answer;
use crate::command::{Acquire, Ask, Open, OpenForPod};
use crate::event::{Event, SessionEnd};
use crate::id::{OpenId, RequestNumber, Secret, SessionId};
use crate::machine::StateMachine;
use crate::outcome::{Acquired, Limit, Opened, Outcome, Rejection};
use crate::pod::{Pod, PodSeen};
use crate::requests::fingerprint;
use crate::session::Session;
use crate::settings::OPEN_AGE_MAX;
use crate::time::Millis;

impl StateMachine {
    /// Whether a session was opened with this id, and lives or has ended within the last minute.
    #[must_use]
    pub fn knows_open(&self, id: &OpenId) -> bool {
        self.opens.contains_key(id)
    }

    /// Opens a session that lasts as long as a Pod.
    pub(crate) fn open_for_pod(&mut self, open: &OpenForPod) -> Result<Outcome, Rejection> {
        let plain = Open {
            id: open.id,
            secret: open.secret,
            seen: open.seen,
            ttl: Millis::FOREVER,
            identity: open.identity.clone(),
            acquire: None,
        };
        self.open(&plain, Some(&open.pod))
    }

    /// Opens a session, or finds the one that this very `Open` made before.
    pub(crate) fn open(&mut self, open: &Open, pod: Option<&Pod>) -> Result<Outcome, Rejection> {
        if let Some(&id) = self.opens.get(&open.id)
            && !planted(Bug::OpenRepeatedOpensAgain)
        {
            return self.reopen(id, open);
        }
        let former = pod.and_then(|pod| self.pods.get(&pod.key()).copied());
        let first = open.acquire.as_ref().map(|acquire| &acquire.name);
        let owner = self.owner_of_new(first)?;
        self.check_open(open, pod, former)?;
        let id = SessionId::new(self.header.next_session).ok_or(Rejection::NotReady)?;
        self.state.header.next_session += 1;
        // One process at a time is behind a container, so that of the former session is over; if it
        // went on, its successor would wait for it for ever.
        if let (Some(former), Some(pod)) = (former, pod) {
            let cause = SessionEnd::PodEnded {
                uid: pod.uid().clone(),
                seen: PodSeen::Restarted,
            };
            self.end_session(former, &cause);
        }
        let mut session = Session::new(
            (open.id, open.secret),
            open.identity.clone(),
            open.ttl,
            self.time(),
        );
        session.owner = owner;
        if let Some(pod) = pod {
            session.bind(pod.clone());
        }
        // After the binding, which takes the place of a TTL.
        session.armed = session.deadline(self.header.term_start);
        self.add_session(id, session);
        self.events.push(Event::SessionOpened { session: id });

        if let Some(acquire) = &open.acquire {
            let ask = Ask::Acquire(acquire.clone());
            self.carry_out_ask(id, RequestNumber::FIRST, &ask);
        }
        self.opened(id, open, false)
    }

    /// Puts a session into every table that finds one.
    pub(crate) fn add_session(&mut self, id: SessionId, session: Session) {
        match session.pod() {
            Some(pod) => drop(self.state.pods.insert(pod.key(), id)),
            None => {
                self.deadlines.insert_session(session.armed, id);
                self.ttls.insert(session.ttl());
            }
        }
        self.usages.change(session.owner.as_ref(), |counts| {
            counts.sessions += 1;
            counts.leases += session.load() as u64;
        });
        self.opens.insert(session.open, id);
        self.state.sessions.insert(id, session);
    }

    pub(crate) fn check_open(
        &self,
        open: &Open,
        pod: Option<&Pod>,
        former: Option<SessionId>,
    ) -> Result<(), Rejection> {
        let now = self.time();
        let (min, max) = (self.settings().ttl_min, self.settings().ttl_max);
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
            && seen.after(OPEN_AGE_MAX) <= now
        {
            return Err(Rejection::OpenTooOld { seen, now });
        }
        // A process that runs now has seen a later time than the one before it lived to see. What has
        // not may be the late `Open` of a process that is over, and must not end its successor.
        if let Some(former) = former.and_then(|former| self.sessions.get(&former))
            && open.seen.is_none_or(|seen| seen <= former.seen())
        {
            let seen = open.seen.unwrap_or_default();
            return Err(Rejection::OpenTooOld { seen, now });
        }
        // Ended sessions count until they are forgotten, or opening and closing in turn would fill
        // the memory without ever reaching the limit.
        let max = self.settings().sessions_max;
        if self.sessions.len() as u64 + self.ended.len() >= max {
            return Err(Rejection::Limit(Limit::Sessions(max)));
        }
        Ok(())
    }

    fn reopen(&mut self, id: SessionId, open: &Open) -> Result<Outcome, Rejection> {
        self.end_if_due(id);
        let proven = |session: &Session| session.secret.proves(&open.secret);
        if !self.sessions.get(&id).is_some_and(proven) {
            return Err(Rejection::OpenIdUsed);
        }
        self.check_owner(id)?;
        if let Some(session) = self.state.sessions.get_mut(&id) {
            session.keep_alive(self.state.header.time);
        }
        self.opened(id, open, true)
    }

    fn opened(&self, id: SessionId, open: &Open, repeated: bool) -> Result<Outcome, Rejection> {
        let session = self.sessions.get(&id).ok_or(Rejection::OpenIdUsed)?;
        let acquire = open.acquire.as_ref();
        Ok(Outcome::Opened(Opened {
            session: id,
            ttl: session.ttl(),
            acquired: acquire.map(|acquire| self.first_of(session, acquire)),
            repeated,
        }))
    }

    /// What became of the acquire that a session was opened with.
    fn first_of(&self, session: &Session, acquire: &Acquire) -> Acquired {
        let number = RequestNumber::FIRST;
        // What still waits is not denied to a caller that asks for it without its wait.
        if let Some(Answer::Waiting { name }) = session.requests.get(number)
            && name == acquire.name
        {
            return Acquired::Waiting { name };
        }
        let asked = fingerprint(&Ask::Acquire(acquire.clone()));
        let known = session.requests.recall(number, asked);
        let other = Rejection::RequestMismatch { number };
        let standing = known.and_then(|answer| self.standing_of(&answer).ok_or(other));
        standing.unwrap_or_else(Acquired::Refused)
    }

    /// Ends a session that is due but was not reached yet, so that its own late request finds it
    /// ended.
    pub(crate) fn end_if_due(&mut self, id: SessionId) {
        if self.alive(id).is_none() {
            self.end_session(id, &SessionEnd::Expired);
        }
    }

    pub(crate) fn close(&mut self, id: SessionId, secret: &Secret) -> Result<Outcome, Rejection> {
        self.end_if_due(id);
        let cause = match self.authenticate_caller(id, secret) {
            Ok(()) => {
                self.check_owner(id)?;
                self.end_session(id, &SessionEnd::Closed);
                Some(SessionEnd::Closed)
            }
            Err(Rejection::SessionExpired { cause }) => {
                // Only the owner is answered with the cause: a number alone proves nothing.
                let remembered = self.ended.get(id);
                if remembered.is_some_and(|ended| !ended.secret.proves(secret)) {
                    return Err(Rejection::WrongSecret);
                }
                cause
            }
            Err(other) => return Err(other),
        };
        Ok(Outcome::Closed { cause })
    }
}
