//! The numbered requests of sessions.

use ringfence_core::{Acquire, Ask, Millis, Request};
use ringfence_planted::{Bug, planted};

use super::id::id;
use super::pb;
use crate::{DecodeError, fields};

impl From<&Request> for pb::Request {
    fn from(request: &Request) -> Self {
        Self {
            session: request.session.get(),
            secret: Some((&request.secret).into()),
            number: request.number.get(),
            lowest: request.lowest.get(),
            ask: Some((&request.ask).into()),
        }
    }
}

impl TryFrom<pb::Request> for Request {
    type Error = DecodeError;

    fn try_from(request: pb::Request) -> Result<Self, DecodeError> {
        Ok(Self {
            session: fields::session(request.session, "request.session")?,
            secret: id(request.secret, "request.secret")?,
            number: fields::number(request.number, "request.number")?,
            lowest: fields::number(request.lowest, "request.lowest")?,
            ask: fields::there(request.ask, "request.ask")?.try_into()?,
        })
    }
}

impl From<&Ask> for pb::request::Ask {
    fn from(ask: &Ask) -> Self {
        match ask {
            Ask::Acquire(acquire) => Self::Acquire(acquire.into()),
            Ask::Cancel { number } => Self::Cancel(number.get()),
            Ask::Release { name, token, close } => Self::Release(pb::Release {
                name: name.as_str().into(),
                token: token.get(),
                close: *close,
            }),
            Ask::Transfer { name, token, to } => Self::Transfer(pb::Transfer {
                name: name.as_str().into(),
                token: token.get(),
                to: to.map_or(0, |session| session.get()),
            }),
        }
    }
}

impl TryFrom<pb::request::Ask> for Ask {
    type Error = DecodeError;

    fn try_from(ask: pb::request::Ask) -> Result<Self, DecodeError> {
        use pb::request::Ask as Packed;
        Ok(match ask {
            Packed::Acquire(acquire) => Self::Acquire(acquire.try_into()?),
            Packed::Cancel(number) => Self::Cancel {
                number: fields::number(number, "request.cancel")?,
            },
            Packed::Release(release) => Self::Release {
                name: fields::lease_name(&release.name, "release.name")?,
                token: fields::token(release.token, "release.token")?,
                close: release.close,
            },
            Packed::Transfer(transfer) => Self::Transfer {
                name: fields::lease_name(&transfer.name, "transfer.name")?,
                token: fields::token(transfer.token, "transfer.token")?,
                to: match transfer.to {
                    0 => None,
                    to => Some(fields::session(to, "transfer.to")?),
                },
            },
        })
    }
}

impl From<&Acquire> for pb::Acquire {
    fn from(acquire: &Acquire) -> Self {
        Self {
            name: acquire.name.as_str().into(),
            wait: match acquire.wait {
                None if planted(Bug::NoWaitIsZero) => Some(0),
                wait => wait.map(|wait| wait.0),
            },
            data: fields::data_bytes(&acquire.data),
            lock_delay: acquire.lock_delay.0,
        }
    }
}

impl TryFrom<pb::Acquire> for Acquire {
    type Error = DecodeError;

    fn try_from(acquire: pb::Acquire) -> Result<Self, DecodeError> {
        Ok(Self {
            name: fields::lease_name(&acquire.name, "acquire.name")?,
            wait: acquire.wait.map(Millis),
            data: fields::holder_data(&acquire.data, "acquire.data")?,
            lock_delay: Millis(acquire.lock_delay),
        })
    }
}
