//! The numbered requests of a session.

use ringfence_planted::{Bug, planted};

use crate::access::change::Mode;
use crate::access::principal::Principal;
use crate::answer::Answer;
use crate::command::{Ask, Request};
use crate::ended::ClosingRelease;
use crate::ending::EndKind;
use crate::event::{EndCause, SessionEnd, WaitEnd};
use crate::id::{FencingToken, RequestNumber, SessionId};
use crate::level::LEVEL_REPEATS;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::outcome::{Acquired, Cancelled, Outcome, Rejection};
use crate::requests::{Admission, fingerprint};
use crate::session::Session;

impl StateMachine {
    /// A numbered request: answered from memory if it was answered before.
    pub(crate) fn request(&mut self, request: &Request) -> Result<Outcome, Rejection> {
        let (id, number) = (request.session, request.number);
        let header = &self.state.header;
        let admitted = |session: &&Session| {
            session.is_alive(header)
                && (session.secret.proves(&request.secret) || planted(Bug::SecretNotChecked))
        };
        let session = self.state.sessions.get(&id);
        if session.filter(admitted).is_none() {
            self.end_if_due(id);
            if let Some(token) = self.released_with(request) {
                return Ok(Outcome::Released { token });
            }
            self.authenticate_caller(id, &request.secret)?;
            return Err(Rejection::SessionExpired { cause: None });
        }
        self.check_owner(id)?;
        let Some(session) = self.state.sessions.get_mut(&id) else {
            return Err(Rejection::SessionExpired { cause: None });
        };
        // Before the request is looked up: a duplicate is a sign of life as well.
        session.keep_alive(self.state.header.time);
        if planted(Bug::JudgedBeforeMemory)
            && let Ask::Acquire(acquire) = &request.ask
        {
            self.check_right(id, &acquire.name)?;
        }
        let Some(session) = self.state.sessions.get_mut(&id) else {
            return Err(Rejection::SessionExpired { cause: None });
        };
        let fingerprint = fingerprint(&request.ask);
        match session.requests.admit(number, request.lowest, fingerprint) {
            Admission::New => Ok(self.carry_out_ask(id, number, &request.ask)),
            Admission::Refused(rejection) => Err(rejection),
            Admission::Repeat(answer) => Ok(self.answer(&answer)),
        }
    }

    /// The token of the release that ended the session, if this is its repeat: it is answered as the
    /// first try was.
    fn released_with(&self, request: &Request) -> Option<FencingToken> {
        let ended = self.ended.get(request.session)?;
        let release = ended.release.as_ref()?;
        let caller = self.caller.as_ref();
        let caller = caller.map_or(Principal::ANONYMOUS, |caller| caller.principal.as_str());
        let owner = ended.owner.as_ref().map(Principal::as_str);
        let owned =
            self.access.mode() != Mode::Enforced || owner.is_none() || owner == Some(caller);
        let same = owned
            && ended.secret.proves(&request.secret)
            && release.number == request.number
            && release.fingerprint == fingerprint(&request.ask);
        same.then_some(release.token)
    }

    pub(crate) fn carry_out_ask(
        &mut self,
        id: SessionId,
        number: RequestNumber,
        ask: &Ask,
    ) -> Outcome {
        let done = match ask {
            Ask::Acquire(acquire) => self.acquire(id, number, acquire),
            Ask::Cancel { number } => self.cancel(id, *number).map(Answer::CancelDone),
            Ask::Release { name, token, .. } => self.release(id, name, *token),
            Ask::Transfer { name, token, to } => self.transfer(id, name, *token, *to),
        };
        let answer = done.unwrap_or_else(Answer::Refused);
        // Before the session can end with it: afterwards a grant could not be shown.
        let outcome = self.answer(&answer);
        let fingerprint = fingerprint(ask);
        if let Ask::Release { close: true, .. } = ask
            && let Answer::Released { token } = answer
        {
            // The session takes its answers along, so its repeat is answered from what is
            // remembered of its end.
            self.end_session(id, &SessionEnd::Closed);
            if self.is_at(LEVEL_REPEATS) {
                let release = ClosingRelease {
                    number,
                    fingerprint,
                    token,
                };
                self.state.ended.remember_release(id, release);
            }
        } else if let Some(session) = self.state.sessions.get_mut(&id)
            && !(planted(Bug::RefusalsNotRemembered) && matches!(answer, Answer::Refused(_)))
        {
            session.requests.remember(number, fingerprint, answer);
        }
        outcome
    }

    /// An answer as the outcome of the request that asks for it now.
    fn answer(&self, answer: &Answer) -> Outcome {
        match answer {
            Answer::Refused(rejection) => Outcome::Rejected(rejection.clone()),
            Answer::Cancelled { name: None } => Outcome::Rejected(Rejection::RequestVoided),
            &Answer::Released { token } => Outcome::Released { token },
            &Answer::Transferred { to, token } => Outcome::Transferred { to, token },
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

    /// How a remembered acquire stands now.
    pub(crate) fn standing_of(&self, answer: &Answer) -> Option<Acquired> {
        Some(match answer.clone() {
            Answer::Granted { name, .. } => Acquired::Granted(self.granted(&name)?),
            Answer::Waiting { name } => Acquired::Waiting { name },
            Answer::Ended { name, token, cause } => {
                let cause = Some(cause);
                Acquired::Ended { name, token, cause }
            }
            Answer::TimedOut { name } => Acquired::TimedOut { name },
            Answer::Cancelled { name } => Acquired::Cancelled { name },
            Answer::Refused(rejection) => Acquired::Refused(rejection),
            Answer::Released { .. } | Answer::Transferred { .. } | Answer::CancelDone(_) => {
                return None;
            }
        })
    }

    /// How a session's acquire stands now; `None` if the session is not alive, the number is not
    /// remembered, or it was no acquire.
    #[must_use]
    pub fn standing(&self, id: SessionId, number: RequestNumber) -> Option<Acquired> {
        self.standing_of(&self.sessions.get(&id)?.requests.get(number)?)
    }

    /// A repeated cancel of a request that had been granted: the lease may have been given back
    /// since.
    fn cancelled_now(&self, cancelled: &Cancelled) -> Cancelled {
        match cancelled {
            Cancelled::Granted { name, token }
                if self.grant_of(name).map(|grant| grant.token) != Some(*token) =>
            {
                Cancelled::Settled
            }
            other => other.clone(),
        }
    }

    fn cancel(&mut self, id: SessionId, target: RequestNumber) -> Result<Cancelled, Rejection> {
        let Some(session) = self.state.sessions.get_mut(&id) else {
            return Ok(Cancelled::Settled);
        };
        let requests = &mut session.requests;
        Ok(match requests.get(target) {
            Some(Answer::Waiting { name }) => {
                let name = Some(name);
                // Both sides in one entry: a place without its request would be an orphan grant.
                requests.settle(target, Answer::Cancelled { name });
                let wait = self.change_session(id, |session| session.remove_wait(target));
                if let Some(wait) = wait.flatten() {
                    self.remove_waiter(&wait.name, wait.place, WaitEnd::Cancelled);
                }
                Cancelled::Removed
            }
            Some(Answer::Granted { name, token }) => Cancelled::Granted { name, token },
            Some(_) => Cancelled::Settled,
            None if planted(Bug::CancelBeforeItsRequest) => Cancelled::Voided,
            None if requests.can_void(target) => {
                requests.remember(target, 0, Answer::Cancelled { name: None });
                Cancelled::Voided
            }
            None if target < requests.lowest() => Cancelled::Settled,
            // It may still come, and there is no room to remember that it is void.
            None => {
                return Err(Rejection::TooManyUnconfirmed {
                    number: target,
                    lowest: requests.lowest(),
                });
            }
        })
    }

    fn release(
        &mut self,
        id: SessionId,
        name: &LeaseName,
        token: FencingToken,
    ) -> Result<Answer, Rejection> {
        let held = self.check_holder(id, name, token);
        held.map_err(|refusal| match planted(Bug::ReleaseShowsHidden) {
            true => refusal,
            false => self.without_hidden(self.owner(id), refusal),
        })?;
        self.end_grant(name, &EndCause::Released, EndKind::Graceful);
        Ok(Answer::Released { token })
    }

    /// Whether the session holds the lease with this very token.
    fn check_holder(
        &self,
        id: SessionId,
        name: &LeaseName,
        offered: FencingToken,
    ) -> Result<(), Rejection> {
        let grant = self.grant_of(name);
        let name = name.clone();
        match grant {
            Some(_) if planted(Bug::ReleaseByName) => Ok(()),
            Some(grant) if grant.token == offered && grant.session == id => Ok(()),
            Some(grant) if grant.token == offered => Err(Rejection::NotHolder { name, offered }),
            other => Err(Rejection::StaleToken {
                name,
                offered,
                current: other.map(|grant| grant.token),
            }),
        }
    }

    /// Hands a lease over in one step. That the target waits for it is its consent, and means that
    /// its client will notice.
    fn transfer(
        &mut self,
        id: SessionId,
        name: &LeaseName,
        token: FencingToken,
        to: Option<SessionId>,
    ) -> Result<Answer, Rejection> {
        // The right first: without it a caller must not learn whether the lease is held.
        self.check_right(id, name)?;
        self.check_holder(id, name, token)?;
        let to = to.filter(|_| !planted(Bug::TransferIgnoresTarget));
        if to.is_none() {
            self.refuse_heads(name);
        }
        let target = self.transfer_target(name, to);
        let may_have = |(to, _): &(SessionId, u64)| self.check_waiter(*to, name).is_ok();
        let Some((to, place)) = target.filter(may_have) else {
            return Err(Rejection::NotWaiting { name: name.clone() });
        };
        // Before the grant ends: a refused transfer leaves the holder what it has.
        if self.header.tokens.is_exhausted() {
            return Err(Rejection::TokensExhausted);
        }
        // Queues are served at the end of an entry, so no other waiter sees the lease free here.
        self.end_grant(name, &EndCause::Transferred { to }, EndKind::Graceful);
        let token = self.grant_to_waiter(name, place);
        let token = token.ok_or(Rejection::TokensExhausted)?;
        Ok(Answer::Transferred { to, token })
    }

    /// The session that a transfer goes to, and its place in the queue.
    fn transfer_target(&self, name: &LeaseName, to: Option<SessionId>) -> Option<(SessionId, u64)> {
        let queue = &self.leases.get(name)?.queue;
        let place = match to {
            // A session knows its own places; the queue may be 100,000 long.
            Some(to) => self.sessions.get(&to)?.first_place(name)?,
            None => *queue.first()?.0,
        };
        // The budget may have ended before the end of this wait came, or that of its session.
        let waiter = queue
            .get(&place)
            .filter(|waiter| waiter.until > self.time())?;
        self.alive(waiter.session)?;
        Some((waiter.session, place))
    }
}
