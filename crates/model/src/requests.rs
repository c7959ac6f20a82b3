//! Numbered requests: each has one effect, whatever is delivered twice or late.

use ringfence_core::snapshot::Answer;
use ringfence_core::{
    Acquired, Ask, Cancelled, EndCause, FencingToken, Granted, LeaseName, Mode, Outcome, Rejection,
    Request, RequestNumber, SessionEnd, SessionId, UNCONFIRMED_MAX, WaitEnd,
};

use super::rights::named;
use super::{Kept, Model, Session};

impl Model {
    pub(super) fn request(&mut self, request: &Request) -> Outcome {
        match self.new_request(request) {
            Ok(outcome) => outcome,
            Err(refused) => Outcome::Rejected(refused),
        }
    }

    fn new_request(&mut self, request: &Request) -> Result<Outcome, Rejection> {
        let Request {
            session: id,
            number,
            ask,
            ..
        } = request;
        if let Some(ended) = self.ended(*id)
            && ended.secret == request.secret
            && let Some((first, asked, token)) = &ended.released
            && (first, asked) == (number, ask)
            && (self.rights.mode != Mode::Enforced
                || ended.owner.is_none()
                || ended.owner == Some(named(self.principal())))
        {
            return Ok(Outcome::Released { token: *token });
        }
        self.authenticate(*id, &request.secret)?;
        self.act_for(*id)?;
        let now = self.time;
        let session = self.session_mut(*id).expect("alive");
        session.seen = session.seen.max(now);
        let remembered = session.answers.iter().any(|kept| kept.number == *number);
        if *number < session.lowest && !remembered {
            let (number, lowest) = (*number, session.lowest);
            return Err(Rejection::StaleRequest { number, lowest });
        }
        let lowest = session.confirm_below(request.lowest.min(*number));
        if let Some(kept) = session.answers.iter().find(|kept| kept.number == *number) {
            if kept.ask.is_none() {
                return Err(Rejection::RequestVoided);
            }
            if kept.ask.as_ref() != Some(ask) {
                return Err(Rejection::RequestMismatch { number: *number });
            }
            let answer = kept.answer.clone();
            return Ok(self.tell(*id, *number, answer));
        }
        if number.get() - lowest.get() >= UNCONFIRMED_MAX {
            let number = *number;
            return Err(Rejection::TooManyUnconfirmed { number, lowest });
        }
        let answer = self.answer(*id, *number, ask);
        if let Some(session) = self.session_mut(*id) {
            // It may have voided itself.
            session.answers.retain(|kept| kept.number != *number);
            session.answers.push(Kept {
                number: *number,
                ask: Some(ask.clone()),
                answer: answer.clone(),
            });
        }
        Ok(self.tell(*id, *number, answer))
    }

    /// Carries out a request that was not answered before.
    fn answer(&mut self, id: SessionId, number: RequestNumber, ask: &Ask) -> Answer {
        match ask {
            Ask::Acquire(acquire) => self.acquire(id, number, acquire),
            Ask::Cancel { number } => match self.cancel(id, *number) {
                Err(refused) => Answer::Refused(refused),
                Ok(cancelled) => Answer::CancelDone(cancelled),
            },
            Ask::Release { name, token, close } => match self.held_by(id, name, *token) {
                Err(refused) => {
                    let session = self.session(id);
                    let owner = session.and_then(|session| session.owner.as_ref());
                    Answer::Refused(self.as_shown(owner, refused))
                }
                Ok(at) => {
                    self.end_grant(at, &EndCause::Released);
                    if *close {
                        self.line_up();
                        self.end_session(id, &SessionEnd::Closed);
                        if self.knows_repeats() {
                            let ended = self.ended.iter_mut().find(|ended| ended.id == id);
                            let ended = ended.expect("just ended");
                            ended.released = Some((number, ask.clone(), *token));
                        }
                    }
                    Answer::Released { token: *token }
                }
            },
            Ask::Transfer { name, token, to } => match self.transfer(id, name, *token, *to) {
                Err(refused) => Answer::Refused(refused),
                Ok(granted) => Answer::Transferred {
                    to: granted.session,
                    token: granted.token,
                },
            },
        }
    }

    /// The lease whose grant in force has this token and is this session's.
    fn held_by(
        &self,
        id: SessionId,
        name: &LeaseName,
        offered: FencingToken,
    ) -> Result<usize, Rejection> {
        let at = self.in_force(name, offered)?;
        let grant = self.leases[at].grant.as_ref().expect("in force");
        if grant.session == id {
            return Ok(at);
        }
        Err(Rejection::NotHolder {
            name: name.clone(),
            offered,
        })
    }

    fn transfer(
        &mut self,
        id: SessionId,
        name: &LeaseName,
        token: FencingToken,
        to: Option<SessionId>,
    ) -> Result<Granted, Rejection> {
        self.may_acquire(id, name)?;
        let at = self.held_by(id, name, token)?;
        if to.is_none() {
            self.refuse_heads(at);
        }
        let mut queue = self.leases[at].queue.iter();
        let place = queue.position(|waiter| to.is_none_or(|to| waiter.session == to));
        let place = place.filter(|&place| {
            let waiter = &self.leases[at].queue[place];
            self.may_be_granted(waiter.session, name).is_ok()
        });
        let Some(place) = place else {
            let name = name.clone();
            return Err(Rejection::NotWaiting { name });
        };
        if !self.token_left() {
            return Err(Rejection::TokensExhausted);
        }
        let waiter = self.leases[at].queue.remove(place);
        let to = waiter.session;
        self.end_grant(at, &EndCause::Transferred { to });
        Ok(self.grant_to_waiter(at, waiter))
    }

    fn cancel(&mut self, id: SessionId, number: RequestNumber) -> Result<Cancelled, Rejection> {
        let session = self.session_mut(id).expect("alive");
        let lowest = session.lowest;
        let kept = session.answers.iter().find(|kept| kept.number == number);
        if kept.is_none() && number < lowest {
            return Ok(Cancelled::Settled);
        }
        if number >= lowest && number.get() - lowest.get() >= UNCONFIRMED_MAX {
            return Err(Rejection::TooManyUnconfirmed { number, lowest });
        }
        let Some(kept) = kept else {
            session.answers.push(Kept {
                number,
                ask: None,
                answer: Answer::Cancelled { name: None },
            });
            return Ok(Cancelled::Voided);
        };
        Ok(match kept.answer.clone() {
            Answer::Waiting { name } => {
                self.leave_queue(id, number, &name, WaitEnd::Cancelled);
                Cancelled::Removed
            }
            Answer::Granted { name, token } => Cancelled::Granted { name, token },
            _ => Cancelled::Settled,
        })
    }

    /// Takes the place of a request out of a queue.
    pub(super) fn leave_queue(
        &mut self,
        id: SessionId,
        number: RequestNumber,
        name: &LeaseName,
        why: WaitEnd,
    ) {
        let at = self.lease_at(name).expect("a session waits for it");
        let mut queue = self.leases[at].queue.iter();
        let place = queue.position(|waiter| (waiter.session, waiter.request) == (id, number));
        let waiter = self.leases[at].queue.remove(place.expect("it waits"));
        self.left_queue(at, &waiter, why);
    }

    /// Changes a remembered answer to what has become of it.
    pub(super) fn reanswer(&mut self, id: SessionId, number: RequestNumber, answer: Answer) {
        let Some(session) = self.session_mut(id) else {
            return;
        };
        if let Some(kept) = session
            .answers
            .iter_mut()
            .find(|kept| kept.number == number)
        {
            kept.answer = answer;
        }
        session.forget_confirmed();
    }

    /// The grant in force with this token.
    fn granted(&self, name: &LeaseName, token: FencingToken) -> Option<Granted> {
        let at = self.in_force(name, token).ok()?;
        let grant = self.leases[at].grant.clone()?;
        Some(Granted {
            name: name.clone(),
            token,
            session: grant.session,
            identity: self.session(grant.session)?.identity.clone(),
            data: grant.data,
            request: grant.request,
            index: grant.index,
            since: grant.since,
        })
    }

    /// How an acquire stands now.
    pub(super) fn standing(&self, id: SessionId, number: RequestNumber) -> Option<Acquired> {
        let mut answers = self.session(id)?.answers.iter();
        let kept = answers.find(|kept| kept.number == number)?;
        Some(match kept.answer.clone() {
            Answer::Waiting { name } => Acquired::Waiting { name },
            Answer::Granted { name, token } => Acquired::Granted(self.granted(&name, token)?),
            Answer::Ended { name, token, cause } => Acquired::Ended {
                name,
                token,
                cause: Some(cause),
            },
            Answer::TimedOut { name } => Acquired::TimedOut { name },
            Answer::Cancelled { name } => Acquired::Cancelled { name },
            Answer::Refused(refused) => Acquired::Refused(refused),
            _ => return None,
        })
    }

    /// What a request is answered, whether for the first time or again.
    fn tell(&self, id: SessionId, number: RequestNumber, answer: Answer) -> Outcome {
        match answer {
            Answer::Refused(refused) => Outcome::Rejected(refused),
            Answer::Released { token } => Outcome::Released { token },
            Answer::Transferred { to, token } => Outcome::Transferred { to, token },
            Answer::CancelDone(Cancelled::Granted { name, token }) => {
                Outcome::Cancelled(match self.in_force(&name, token) {
                    Ok(_) => Cancelled::Granted { name, token },
                    Err(_) => Cancelled::Settled,
                })
            }
            Answer::CancelDone(done) => Outcome::Cancelled(done),
            _ => Outcome::Acquired(self.standing(id, number).expect("an acquire")),
        }
    }
}

impl Session {
    /// Forgets the answers below `lowest`, but never a request that waits or whose grant is in
    /// force; the lowest number of the session now.
    fn confirm_below(&mut self, lowest: RequestNumber) -> RequestNumber {
        self.lowest = self.lowest.max(lowest);
        self.forget_confirmed();
        self.lowest
    }

    /// To be called whenever an answer changes: what was confirmed is kept only while something
    /// can still come of it.
    pub(super) fn forget_confirmed(&mut self) {
        let lowest = self.lowest;
        self.answers.retain(|kept| {
            let alive = matches!(kept.answer, Answer::Waiting { .. } | Answer::Granted { .. });
            kept.number >= lowest || alive
        });
    }
}
