//! A remembered answer in little room: most sessions remember one, and it is mostly the grant that
//! is in force.

use alloc::boxed::Box;

use crate::id::{FencingToken, RequestNumber};
use crate::name::LeaseName;
use crate::snapshot::{Answer, Remembered};

/// A remembered request with its answer.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) number: RequestNumber,
    pub(crate) fingerprint: u64,
    pub(crate) answer: KeptAnswer,
}

/// An [`Answer`]; the frequent ones need no memory of their own. Granted has a name and a token,
/// waiting a name only, released a token only.
#[derive(Clone, Debug)]
pub(crate) struct KeptAnswer {
    token: Option<FencingToken>,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Named(LeaseName),
    /// Any answer but the three; none for one that has a token only.
    Other(Option<Box<Answer>>),
}

impl From<Answer> for KeptAnswer {
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

impl KeptAnswer {
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

impl From<Remembered> for Kept {
    fn from(remembered: Remembered) -> Self {
        Self {
            number: remembered.number,
            fingerprint: remembered.fingerprint,
            answer: remembered.answer.into(),
        }
    }
}

impl Kept {
    pub(crate) fn record(&self) -> Remembered {
        Remembered {
            number: self.number,
            fingerprint: self.fingerprint,
            answer: self.answer.get(),
        }
    }
}
