//! Living sessions and the answers they remember.

use ringfence_core::snapshot::{Answer, Remembered, SessionRecord};
use ringfence_core::{ClusterTime, Millis};
use ringfence_planted::{Bug, planted};

use crate::record::access::{principal_or_none, text_of};
use crate::record::id::id;
use crate::record::pb;
use crate::{DecodeError, fields};

impl From<&SessionRecord> for pb::Session {
    fn from(session: &SessionRecord) -> Self {
        Self {
            id: session.id.get(),
            open: Some((&session.open).into()),
            secret: Some((&session.secret).into()),
            identity: session.identity.as_str().into(),
            ttl: session.ttl.0,
            seen: session.seen.0,
            armed: session.armed.0,
            lowest: session.lowest.get(),
            answers: session.answers.iter().map(Into::into).collect(),
            lost: match planted(Bug::LossesLostInRecord) {
                true => Vec::new(),
                false => session.lost.iter().map(Into::into).collect(),
            },
            pod: session.pod.as_ref().map(Into::into),
            owner: text_of(session.owner.as_ref()),
        }
    }
}

impl TryFrom<pb::Session> for SessionRecord {
    type Error = DecodeError;

    fn try_from(session: pb::Session) -> Result<Self, DecodeError> {
        let answers = session.answers.into_iter().map(TryInto::try_into);
        let lost = session.lost.into_iter().map(TryInto::try_into);
        Ok(Self {
            id: fields::session(session.id, "session.id")?,
            open: id(session.open, "session.open")?,
            secret: id(session.secret, "session.secret")?,
            identity: fields::identity(&session.identity, "session.identity")?,
            ttl: Millis(session.ttl),
            seen: ClusterTime(session.seen),
            armed: ClusterTime(session.armed),
            lowest: fields::number(session.lowest, "session.lowest")?,
            answers: answers.collect::<Result<_, _>>()?,
            lost: lost.collect::<Result<_, _>>()?,
            pod: session.pod.map(TryInto::try_into).transpose()?,
            owner: principal_or_none(&session.owner, "session.owner")?,
        })
    }
}

impl From<&Remembered> for pb::Remembered {
    fn from(remembered: &Remembered) -> Self {
        Self {
            number: remembered.number.get(),
            fingerprint: remembered.fingerprint,
            answer: Some((&remembered.answer).into()),
        }
    }
}

impl TryFrom<pb::Remembered> for Remembered {
    type Error = DecodeError;

    fn try_from(remembered: pb::Remembered) -> Result<Self, DecodeError> {
        Ok(Self {
            number: fields::number(remembered.number, "remembered.number")?,
            fingerprint: remembered.fingerprint,
            answer: fields::there(remembered.answer, "remembered.answer")?.try_into()?,
        })
    }
}

impl From<&Answer> for pb::remembered::Answer {
    fn from(answer: &Answer) -> Self {
        match answer {
            Answer::Waiting { name } => Self::Waiting(name.as_str().into()),
            Answer::Granted { name, token } => Self::Granted(pb::NameToken {
                name: name.as_str().into(),
                token: token.get(),
            }),
            Answer::Ended { name, token, cause } => Self::Ended(pb::Lapsed {
                name: name.as_str().into(),
                token: token.get(),
                cause: Some(cause.into()),
            }),
            Answer::TimedOut { name } => Self::TimedOut(name.as_str().into()),
            Answer::Cancelled { name } => Self::Cancelled(
                name.as_ref()
                    .map(|name| name.as_str().into())
                    .unwrap_or_default(),
            ),
            Answer::Released { token } => Self::Released(token.get()),
            Answer::Transferred { to, token } => Self::Transferred((*to, *token).into()),
            Answer::CancelDone(cancelled) => Self::CancelDone(cancelled.into()),
            Answer::Refused(rejection) => Self::Refused(rejection.into()),
        }
    }
}

impl TryFrom<pb::remembered::Answer> for Answer {
    type Error = DecodeError;

    fn try_from(answer: pb::remembered::Answer) -> Result<Self, DecodeError> {
        use pb::remembered::Answer as Packed;
        Ok(match answer {
            Packed::Waiting(name) => Self::Waiting {
                name: fields::lease_name(&name, "answer.waiting")?,
            },
            Packed::Granted(granted) => Self::Granted {
                name: fields::lease_name(&granted.name, "answer.granted.name")?,
                token: fields::token(granted.token, "answer.granted.token")?,
            },
            Packed::Ended(ended) => Self::Ended {
                name: fields::lease_name(&ended.name, "answer.ended.name")?,
                token: fields::token(ended.token, "answer.ended.token")?,
                cause: fields::there(ended.cause, "answer.ended.cause")?.try_into()?,
            },
            Packed::TimedOut(name) => Self::TimedOut {
                name: fields::lease_name(&name, "answer.timed_out")?,
            },
            Packed::Cancelled(name) => Self::Cancelled {
                name: fields::lease_name_or_none(&name, "answer.cancelled")?,
            },
            Packed::Released(token) => Self::Released {
                token: fields::token(token, "answer.released")?,
            },
            Packed::Transferred(transferred) => {
                let (to, token) = transferred.try_into()?;
                Self::Transferred { to, token }
            }
            Packed::CancelDone(cancelled) => Self::CancelDone(cancelled.try_into()?),
            Packed::Refused(rejection) => Self::Refused(rejection.try_into()?),
        })
    }
}
