//! Log commands.

use ringfence_core::{
    ClusterTime, Command, Configure, Evict, Form, Millis, Mode, OPERATE_BYTES_MAX, Open, Renew,
    Revoke, SessionId,
};

use super::access::mode_of;
use super::id::id;
use super::pb::command::Kind;
use super::pod::pod_ended;
use super::shared::NOTHING;
use super::{known_level, numbers, pb};
use crate::{DecodeError, fields};

impl From<&Command> for pb::Command {
    fn from(command: &Command) -> Self {
        let kind = match command {
            Command::Form(form) => Kind::Form(form.into()),
            Command::TermStart { unix_seconds } => Kind::TermStart(pb::TermStart {
                unix_seconds: *unix_seconds,
            }),
            Command::Tick => Kind::Tick(NOTHING),
            Command::Configure(configure) => Kind::Configure(pb::Configure {
                based_on: configure.based_on,
                settings: Some((&configure.settings).into()),
            }),
            Command::Open(open) => Kind::Open(open.into()),
            Command::Request(request) => Kind::Request(request.into()),
            Command::Close { session, secret } => Kind::Close(pb::Close {
                session: session.get(),
                secret: Some(secret.into()),
            }),
            Command::Renew(renew) => Kind::Renew(renew.into()),
            Command::Revoke(revoke) => Kind::Revoke(revoke.into()),
            Command::Evict(evict) => Kind::Evict(pb::Evict {
                session: evict.session.get(),
                reason: evict.reason.clone(),
                operator: evict.operator.clone(),
            }),
            Command::DrawNodeId => Kind::DrawNodeId(NOTHING),
            Command::OpenForPod(open) => Kind::OpenForPod(open.into()),
            Command::PodEnded(ended) => Kind::PodEnded(pod_ended(&ended.uid, ended.seen)),
            Command::RaiseLevel { level } => Kind::RaiseLevel(pb::RaiseLevel { level: *level }),
            Command::Called(called) => Kind::Called(Box::new((&**called).into())),
            Command::ChangeAccess(change) => Kind::ChangeAccess(change.into()),
            Command::Adopt { session, secret } => Kind::Adopt(pb::Close {
                session: session.get(),
                secret: Some(secret.into()),
            }),
            Command::Operate { change } => Kind::Operate(pb::Operate {
                change: change.clone(),
            }),
            Command::WriteObject(write) => Kind::WriteObject((&**write).into()),
            Command::Seed(seed) => Kind::Seed(seed.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<Kind> for Command {
    type Error = DecodeError;

    fn try_from(kind: Kind) -> Result<Self, DecodeError> {
        Ok(match kind {
            Kind::Form(form) => Self::Form(form.try_into()?),
            Kind::TermStart(start) => Self::TermStart {
                unix_seconds: start.unix_seconds,
            },
            Kind::Tick(_) => Self::Tick,
            Kind::Configure(configure) => Self::Configure(Configure {
                based_on: configure.based_on,
                settings: fields::there(configure.settings, "configure.settings")?.into(),
            }),
            Kind::Open(open) => Self::Open(open.try_into()?),
            Kind::Request(request) => Self::Request(request.try_into()?),
            Kind::Close(close) => Self::Close {
                session: fields::session(close.session, "close.session")?,
                secret: id(close.secret, "close.secret")?,
            },
            Kind::Renew(renew) => Self::Renew(renew.try_into()?),
            Kind::Revoke(revoke) => Self::Revoke(revoke.try_into()?),
            Kind::Evict(evict) => Self::Evict(Evict {
                session: fields::session(evict.session, "evict.session")?,
                reason: evict.reason,
                operator: evict.operator,
            }),
            Kind::DrawNodeId(_) => Self::DrawNodeId,
            Kind::OpenForPod(open) => Self::OpenForPod(open.try_into()?),
            Kind::PodEnded(ended) => Self::PodEnded(ended.try_into()?),
            Kind::RaiseLevel(raise) => Self::RaiseLevel {
                level: known_level(raise.level)?,
            },
            Kind::Called(called) => Self::Called(Box::new((*called).try_into()?)),
            Kind::ChangeAccess(change) => Self::ChangeAccess(change.try_into()?),
            Kind::Adopt(adopt) => Self::Adopt {
                session: fields::session(adopt.session, "adopt.session")?,
                secret: id(adopt.secret, "adopt.secret")?,
            },
            Kind::Operate(pb::Operate { change }) => Self::Operate {
                change: operate_text(change)?,
            },
            Kind::WriteObject(write) => Self::WriteObject(Box::new(write.try_into()?)),
            Kind::Seed(seed) => Self::Seed(seed.try_into()?),
        })
    }
}

fn operate_text(change: String) -> Result<String, DecodeError> {
    let bytes = change.len();
    if bytes > OPERATE_BYTES_MAX {
        let why = format!("{bytes} bytes; at most {OPERATE_BYTES_MAX} are allowed");
        return Err(DecodeError::invalid("operate.change", why));
    }
    Ok(change)
}

impl From<&Form> for pb::Form {
    fn from(form: &Form) -> Self {
        Self {
            cluster: Some((&form.cluster).into()),
            token_floor: form.token_floor,
            settings: Some((&form.settings).into()),
            // What is off is left out: so was it before clusters could be formed with a mode.
            mode: match form.mode {
                Mode::Off => pb::Mode::Unspecified.into(),
                mode => pb::Mode::from(mode).into(),
            },
            quiet_time: form.quiet_time.0,
            restored: form.restored.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<pb::Form> for Form {
    type Error = DecodeError;

    fn try_from(form: pb::Form) -> Result<Self, DecodeError> {
        Ok(Self {
            cluster: id(form.cluster, "form.cluster")?,
            token_floor: form.token_floor,
            settings: fields::there(form.settings, "form.settings")?.into(),
            mode: match form.mode {
                0 => Mode::Off,
                mode => match mode_of(mode, "form.mode")? {
                    Mode::Off => return Err(DecodeError::invalid("form.mode", "off is left out")),
                    mode => mode,
                },
            },
            quiet_time: Millis(form.quiet_time),
            restored: form.restored.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&Open> for pb::Open {
    fn from(open: &Open) -> Self {
        Self {
            id: Some((&open.id).into()),
            secret: Some((&open.secret).into()),
            seen: open.seen.map(|time| time.0),
            ttl: open.ttl.0,
            identity: open.identity.as_str().into(),
            acquire: open.acquire.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<pb::Open> for Open {
    type Error = DecodeError;

    fn try_from(open: pb::Open) -> Result<Self, DecodeError> {
        Ok(Self {
            id: id(open.id, "open.id")?,
            secret: id(open.secret, "open.secret")?,
            seen: open.seen.map(ClusterTime),
            ttl: Millis(open.ttl),
            identity: fields::identity(&open.identity, "open.identity")?,
            acquire: open.acquire.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&Renew> for pb::Renew {
    fn from(renew: &Renew) -> Self {
        let pair = |(session, token): &(SessionId, _)| pb::SessionToken::from((*session, *token));
        Self {
            sessions: numbers::pack(&renew.sessions),
            acknowledged: renew.acknowledged.iter().map(pair).collect(),
        }
    }
}

impl TryFrom<pb::Renew> for Renew {
    type Error = DecodeError;

    fn try_from(renew: pb::Renew) -> Result<Self, DecodeError> {
        Ok(Self {
            sessions: numbers::unpack(&renew.sessions, "renew.sessions")?,
            acknowledged: renew
                .acknowledged
                .into_iter()
                .map(TryInto::try_into)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl From<&Revoke> for pb::Revoke {
    fn from(revoke: &Revoke) -> Self {
        Self {
            name: revoke.name.as_str().into(),
            token: revoke.token.get(),
            now: revoke.now,
            reason: revoke.reason.clone(),
            operator: revoke.operator.clone(),
        }
    }
}

impl TryFrom<pb::Revoke> for Revoke {
    type Error = DecodeError;

    fn try_from(revoke: pb::Revoke) -> Result<Self, DecodeError> {
        Ok(Self {
            name: fields::lease_name(&revoke.name, "revoke.name")?,
            token: fields::token(revoke.token, "revoke.token")?,
            now: revoke.now,
            reason: revoke.reason,
            operator: revoke.operator,
        })
    }
}
