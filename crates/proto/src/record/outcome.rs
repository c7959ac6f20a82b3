//! Outcomes, as a leader tells them to the follower that forwarded a proposal.

use ringfence_core::{
    Acquired, Cancelled, ClusterTime, FencingToken, Millis, Opened, Outcome, Renewed, SessionEnd,
    SessionId,
};

use super::pb::outcome::Kind;
use super::shared::NOTHING;
use super::{numbers, pb};
use crate::{DecodeError, fields};

impl From<&Outcome> for pb::Outcome {
    fn from(outcome: &Outcome) -> Self {
        let kind = match outcome {
            Outcome::Done => Kind::Done(NOTHING),
            Outcome::Opened(opened) => Kind::Opened(pb::Opened {
                session: opened.session.get(),
                ttl: opened.ttl.0,
                acquired: opened.acquired.as_ref().map(Into::into),
                repeated: opened.repeated,
            }),
            Outcome::Acquired(acquired) => Kind::Acquired(acquired.into()),
            Outcome::Cancelled(cancelled) => Kind::Cancelled(cancelled.into()),
            Outcome::Released { token } => Kind::Released(token.get()),
            Outcome::Transferred { to, token } => Kind::Transferred((*to, *token).into()),
            Outcome::Closed { cause } => Kind::Closed(cause.as_ref().into()),
            Outcome::Renewed(renewed) => Kind::Renewed(renewed.into()),
            Outcome::NodeId(id) => Kind::NodeId(*id),
            Outcome::AccessChanged { set_at, token } => Kind::AccessChanged(pb::AccessChanged {
                set_at: *set_at,
                token: token.unwrap_or_default(),
            }),
            Outcome::Object(written) => Kind::Object((&**written).into()),
            Outcome::Rejected(rejection) => Kind::Rejected(rejection.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<Kind> for Outcome {
    type Error = DecodeError;

    fn try_from(kind: Kind) -> Result<Self, DecodeError> {
        Ok(match kind {
            Kind::Done(_) => Self::Done,
            Kind::Opened(opened) => Self::Opened(Opened {
                session: fields::session(opened.session, "opened.session")?,
                ttl: Millis(opened.ttl),
                acquired: opened.acquired.map(TryInto::try_into).transpose()?,
                repeated: opened.repeated,
            }),
            Kind::Acquired(acquired) => Self::Acquired(acquired.try_into()?),
            Kind::Cancelled(cancelled) => Self::Cancelled(cancelled.try_into()?),
            Kind::Released(token) => Self::Released {
                token: fields::token(token, "released")?,
            },
            Kind::Transferred(transferred) => {
                let (to, token) = transferred.try_into()?;
                Self::Transferred { to, token }
            }
            Kind::Closed(closed) => Self::Closed {
                cause: closed.try_into()?,
            },
            Kind::Renewed(renewed) => Self::Renewed(renewed.try_into()?),
            Kind::NodeId(id) => Self::NodeId(id),
            Kind::AccessChanged(changed) => Self::AccessChanged {
                set_at: changed.set_at,
                token: (changed.token > 0).then_some(changed.token),
            },
            Kind::Object(written) => Self::Object(Box::new(written.try_into()?)),
            Kind::Rejected(rejection) => Self::Rejected(rejection.try_into()?),
        })
    }
}

impl From<&Acquired> for pb::Acquired {
    fn from(acquired: &Acquired) -> Self {
        use pb::acquired::Kind;
        let kind = match acquired {
            Acquired::Granted(granted) => Kind::Granted(granted.into()),
            Acquired::Waiting { name } => Kind::Waiting(name.as_str().into()),
            Acquired::Ended { name, token, cause } => Kind::Ended(pb::Lapsed {
                name: name.as_str().into(),
                token: token.get(),
                cause: cause.as_ref().map(Into::into),
            }),
            Acquired::TimedOut { name } => Kind::TimedOut(name.as_str().into()),
            Acquired::Cancelled { name } => Kind::Cancelled(
                name.as_ref()
                    .map(|name| name.as_str().into())
                    .unwrap_or_default(),
            ),
            Acquired::Refused(rejection) => Kind::Refused(rejection.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::Acquired> for Acquired {
    type Error = DecodeError;

    fn try_from(acquired: pb::Acquired) -> Result<Self, DecodeError> {
        use pb::acquired::Kind;
        Ok(match fields::there(acquired.kind, "acquired.kind")? {
            Kind::Granted(granted) => Self::Granted(granted.try_into()?),
            Kind::Waiting(name) => Self::Waiting {
                name: fields::lease_name(&name, "acquired.waiting")?,
            },
            Kind::Ended(ended) => Self::Ended {
                name: fields::lease_name(&ended.name, "acquired.ended.name")?,
                token: fields::token(ended.token, "acquired.ended.token")?,
                cause: ended.cause.map(TryInto::try_into).transpose()?,
            },
            Kind::TimedOut(name) => Self::TimedOut {
                name: fields::lease_name(&name, "acquired.timed_out")?,
            },
            Kind::Cancelled(name) => Self::Cancelled {
                name: fields::lease_name_or_none(&name, "acquired.cancelled")?,
            },
            Kind::Refused(rejection) => Self::Refused(rejection.try_into()?),
        })
    }
}

impl From<&Cancelled> for pb::Cancelled {
    fn from(cancelled: &Cancelled) -> Self {
        use pb::cancelled::Kind;
        let kind = match cancelled {
            Cancelled::Removed => Kind::Removed(NOTHING),
            Cancelled::Granted { name, token } => Kind::Granted(pb::NameToken {
                name: name.as_str().into(),
                token: token.get(),
            }),
            Cancelled::Settled => Kind::Settled(NOTHING),
            Cancelled::Voided => Kind::Voided(NOTHING),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::Cancelled> for Cancelled {
    type Error = DecodeError;

    fn try_from(cancelled: pb::Cancelled) -> Result<Self, DecodeError> {
        use pb::cancelled::Kind;
        Ok(match fields::there(cancelled.kind, "cancelled.kind")? {
            Kind::Removed(_) => Self::Removed,
            Kind::Granted(granted) => Self::Granted {
                name: fields::lease_name(&granted.name, "cancelled.granted.name")?,
                token: fields::token(granted.token, "cancelled.granted.token")?,
            },
            Kind::Settled(_) => Self::Settled,
            Kind::Voided(_) => Self::Voided,
        })
    }
}

impl From<(SessionId, FencingToken)> for pb::SessionToken {
    fn from((session, token): (SessionId, FencingToken)) -> Self {
        Self {
            session: session.get(),
            token: token.get(),
        }
    }
}

impl TryFrom<pb::SessionToken> for (SessionId, FencingToken) {
    type Error = DecodeError;

    fn try_from(pair: pb::SessionToken) -> Result<Self, DecodeError> {
        Ok((
            fields::session(pair.session, "session_token.session")?,
            fields::token(pair.token, "session_token.token")?,
        ))
    }
}

impl From<Option<&SessionEnd>> for pb::Closed {
    fn from(cause: Option<&SessionEnd>) -> Self {
        Self {
            cause: cause.map(Into::into),
        }
    }
}

impl TryFrom<pb::Closed> for Option<SessionEnd> {
    type Error = DecodeError;

    fn try_from(closed: pb::Closed) -> Result<Self, DecodeError> {
        closed.cause.map(TryInto::try_into).transpose()
    }
}

impl From<&Renewed> for pb::Renewed {
    fn from(renewed: &Renewed) -> Self {
        let lost = renewed
            .lost
            .iter()
            .map(|(session, grants)| pb::SessionLosses {
                session: session.get(),
                grants: grants.iter().map(Into::into).collect(),
            });
        Self {
            time: renewed.time.0,
            ended: numbers::pack(&renewed.ended),
            lost: lost.collect(),
        }
    }
}

impl TryFrom<pb::Renewed> for Renewed {
    type Error = DecodeError;

    fn try_from(renewed: pb::Renewed) -> Result<Self, DecodeError> {
        let mut lost = Vec::with_capacity(renewed.lost.len());
        for losses in renewed.lost {
            let grants = losses.grants.into_iter().map(TryInto::try_into);
            let session = fields::session(losses.session, "renewed.lost.session")?;
            lost.push((session, grants.collect::<Result<_, _>>()?));
        }
        let ended = numbers::unpack(&renewed.ended, "renewed.ended")?;
        Ok(Self {
            time: ClusterTime(renewed.time),
            ended,
            lost,
        })
    }
}
