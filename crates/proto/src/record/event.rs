//! Events, as histories keep them.

use ringfence_core::{Event, WaitEnd, WallTime};

use super::pb;
use super::pb::event::Kind;
use crate::{DecodeError, fields};

impl From<&Event> for pb::Event {
    fn from(event: &Event) -> Self {
        let kind = match event {
            Event::Granted(granted) => Kind::Granted(granted.into()),
            Event::Ended {
                name,
                token,
                session,
                identity,
                cause,
                at,
            } => Kind::Ended(pb::GrantEnded {
                name: name.as_str().into(),
                token: token.get(),
                session: session.get(),
                identity: identity.as_str().into(),
                cause: Some(cause.into()),
                at: at.0,
            }),
            Event::WaitEnded {
                name,
                session,
                request,
                why,
            } => Kind::WaitEnded(pb::WaitEnded {
                name: name.as_str().into(),
                session: session.get(),
                request: request.get(),
                why: pb::WaitEnd::from(*why).into(),
            }),
            Event::SessionOpened { session } => Kind::SessionOpened(session.get()),
            Event::SessionEnded { session, cause } => Kind::SessionEnded(pb::SessionEnded {
                session: session.get(),
                cause: Some(cause.into()),
            }),
            Event::Forgotten { name, floor } => Kind::Forgotten(pb::Forgotten {
                name: name.as_str().into(),
                floor: floor.get(),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<Kind> for Event {
    type Error = DecodeError;

    fn try_from(kind: Kind) -> Result<Self, DecodeError> {
        Ok(match kind {
            Kind::Granted(granted) => Self::Granted(granted.try_into()?),
            Kind::Ended(ended) => Self::Ended {
                name: fields::lease_name(&ended.name, "ended.name")?,
                token: fields::token(ended.token, "ended.token")?,
                session: fields::session(ended.session, "ended.session")?,
                identity: fields::identity(&ended.identity, "ended.identity")?,
                cause: fields::there(ended.cause, "ended.cause")?.try_into()?,
                at: WallTime(ended.at),
            },
            Kind::WaitEnded(ended) => Self::WaitEnded {
                name: fields::lease_name(&ended.name, "wait_ended.name")?,
                session: fields::session(ended.session, "wait_ended.session")?,
                request: fields::number(ended.request, "wait_ended.request")?,
                why: wait_end(ended.why)?,
            },
            Kind::SessionOpened(session) => Self::SessionOpened {
                session: fields::session(session, "session_opened")?,
            },
            Kind::SessionEnded(ended) => Self::SessionEnded {
                session: fields::session(ended.session, "session_ended.session")?,
                cause: fields::there(ended.cause, "session_ended.cause")?.try_into()?,
            },
            Kind::Forgotten(forgotten) => Self::Forgotten {
                name: fields::lease_name(&forgotten.name, "forgotten.name")?,
                floor: fields::token(forgotten.floor, "forgotten.floor")?,
            },
        })
    }
}

impl From<WaitEnd> for pb::WaitEnd {
    fn from(why: WaitEnd) -> Self {
        match why {
            WaitEnd::TimedOut => Self::TimedOut,
            WaitEnd::Cancelled => Self::Cancelled,
            WaitEnd::SessionEnded => Self::SessionEnded,
            WaitEnd::Refused => Self::Refused,
        }
    }
}

fn wait_end(raw: i32) -> Result<WaitEnd, DecodeError> {
    let field = "wait_ended.why";
    match pb::WaitEnd::try_from(raw) {
        Ok(pb::WaitEnd::TimedOut) => Ok(WaitEnd::TimedOut),
        Ok(pb::WaitEnd::Cancelled) => Ok(WaitEnd::Cancelled),
        Ok(pb::WaitEnd::SessionEnded) => Ok(WaitEnd::SessionEnded),
        Ok(pb::WaitEnd::Refused) => Ok(WaitEnd::Refused),
        Ok(pb::WaitEnd::Unspecified) => Err(DecodeError::Missing { field }),
        Err(_) => Err(DecodeError::invalid(
            field,
            format!("{raw} is unknown; 1 to 3 are known"),
        )),
    }
}
