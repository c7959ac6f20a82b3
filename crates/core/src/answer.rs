//! The answers that a session remembers of its requests.

use alloc::boxed::Box;

use crate::event::EndCause;
use crate::id::{FencingToken, RequestNumber, SessionId};
use crate::name::LeaseName;
use crate::outcome::{Cancelled, Rejection};

/// A remembered answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remembered {
    /// The request's number.
    pub number: RequestNumber,
    /// A fingerprint of what was asked, so that another ask under the same number is noticed.
    pub fingerprint: u64,
    /// What it was answered, as it stands now.
    pub answer: Answer,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It stands in the queue.
    Waiting {
        /// Of this lease.
        name: LeaseName,
    },
    /// It was granted, and the grant is in force.
    Granted {
        /// The lease.
        name: LeaseName,
        /// The token.
        token: FencingToken,
    },
    /// It was granted, and the grant has ended.
    Ended {
        /// The lease.
        name: LeaseName,
        /// The token.
        token: FencingToken,
        /// Why it ended.
        cause: EndCause,
    },
    /// Its wait was over.
    TimedOut {
        /// The lease.
        name: LeaseName,
    },
    /// It was taken back, or voided before it came if there is no name.
    Cancelled {
        /// The lease.
        name: Option<LeaseName>,
    },
    /// A release was done.
    Released {
        /// The token of the grant that it ended.
        token: FencingToken,
    },
    /// A transfer was done.
    Transferred {
        /// To this session.
        to: SessionId,
        /// The new token.
        token: FencingToken,
    },
    /// A cancel was done.
    CancelDone(Cancelled),
    /// It was refused.
    Refused(Rejection),
}

/// A remembered request with its answer.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub(crate) number: RequestNumber,
    pub(crate) fingerprint: u64,
    pub(crate) answer: CachedAnswer,
}

/// An [`Answer`]; the frequent ones need no memory of their own. Granted has a name and a token,
/// waiting a name only, released a token only.
#[derive(Clone, Debug)]
pub(crate) struct CachedAnswer {
    token: Option<FencingToken>,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Named(LeaseName),
    /// Any answer but the three; none for one that has a token only.
    Other(Option<Box<Answer>>),
}

impl From<Answer> for CachedAnswer {
    fn from(answer: Answer) -> Self {
        let (token, what) = match answer {
            Answer::Granted { name, token } => (Some(token), What::Named(name)),
            Answer::Waiting { name } => (None, What::Named(name)),
            Answer::Released { token } => (Some(token), What::Other(None)),
            other => (None, What::Other(Some(Box::new(other)))),
        };
        Self { token, what }
    }
}

impl CachedAnswer {
    pub(crate) fn get(&self) -> Answer {
        match (&self.what, self.token) {
            (What::Named(name), Some(token)) => {
                let name = name.clone();
                Answer::Granted { name, token }
            }
            (What::Named(name), None) => Answer::Waiting { name: name.clone() },
            (What::Other(Some(other)), _) => (**other).clone(),
            (What::Other(None), Some(token)) => Answer::Released { token },
            // No answer is kept so; one that says nothing stands in for it.
            (What::Other(None), None) => Answer::Cancelled { name: None },
        }
    }

    /// Whether something can still come of the request: it waits, or holds.
    pub(crate) fn in_force(&self) -> bool {
        matches!(self.what, What::Named(_))
    }

    /// Whether the request was taken back before it came.
    pub(crate) fn is_voided(&self) -> bool {
        let other = match &self.what {
            What::Other(other) => other.as_deref(),
            What::Named(_) => None,
        };
        matches!(other, Some(Answer::Cancelled { name: None }))
    }

    /// Takes `name`, which is equal, in the place of its own, so that there is only one of it.
    pub(crate) fn share(&mut self, name: &LeaseName) {
        if let What::Named(own) = &mut self.what
            && own == name
        {
            *own = name.clone();
        }
    }
}

impl From<Remembered> for Cached {
    fn from(remembered: Remembered) -> Self {
        Self {
            number: remembered.number,
            fingerprint: remembered.fingerprint,
            answer: remembered.answer.into(),
        }
    }
}

impl Cached {
    pub(crate) fn record(&self) -> Remembered {
        Remembered {
            number: self.number,
            fingerprint: self.fingerprint,
            answer: self.answer.get(),
        }
    }
}
