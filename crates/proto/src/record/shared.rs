//! What several kinds of records have in common.

use ringfence_core::{
    EndCause, Granted, LostGrant, Millis, PodEnded, SessionEnd, Settings, WallTime,
};

use super::pb;
use super::pod::pod_ended;
use crate::{DecodeError, fields};

pub(super) const NOTHING: pb::Nothing = pb::Nothing {};

impl From<&Settings> for pb::Settings {
    fn from(settings: &Settings) -> Self {
        Self {
            ttl_min: settings.ttl_min.0,
            ttl_max: settings.ttl_max.0,
            idle_retention: settings.idle_retention.0,
            session_leases_max: settings.session_leases_max,
            lease_waiters_max: settings.lease_waiters_max,
            leases_max: settings.leases_max,
            sessions_max: settings.sessions_max,
            // Left out as in entries from before there was a factor.
            lease_api_factor: Some(settings.lease_api_factor)
                .filter(|factor| *factor != Settings::STANDARD.lease_api_factor),
        }
    }
}

impl From<pb::Settings> for Settings {
    fn from(settings: pb::Settings) -> Self {
        Self {
            ttl_min: Millis(settings.ttl_min),
            ttl_max: Millis(settings.ttl_max),
            idle_retention: Millis(settings.idle_retention),
            session_leases_max: settings.session_leases_max,
            lease_waiters_max: settings.lease_waiters_max,
            leases_max: settings.leases_max,
            sessions_max: settings.sessions_max,
            lease_api_factor: settings
                .lease_api_factor
                .unwrap_or(Settings::STANDARD.lease_api_factor),
        }
    }
}

fn by_operator(operator: &str, reason: &str) -> pb::ByOperator {
    pb::ByOperator {
        operator: operator.into(),
        reason: reason.into(),
    }
}

impl From<&EndCause> for pb::EndCause {
    fn from(cause: &EndCause) -> Self {
        use pb::end_cause::Kind;
        let kind = match cause {
            EndCause::Released => Kind::Released(NOTHING),
            EndCause::Expired => Kind::Expired(NOTHING),
            EndCause::Closed => Kind::Closed(NOTHING),
            EndCause::Revoked { operator, reason } => Kind::Revoked(by_operator(operator, reason)),
            EndCause::Evicted { operator, reason } => Kind::Evicted(by_operator(operator, reason)),
            EndCause::Transferred { to } => Kind::Transferred(to.get()),
            EndCause::PodEnded { uid, seen } => Kind::PodEnded(pod_ended(uid, *seen)),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::EndCause> for EndCause {
    type Error = DecodeError;

    fn try_from(cause: pb::EndCause) -> Result<Self, DecodeError> {
        use pb::end_cause::Kind;
        Ok(match fields::there(cause.kind, "end_cause.kind")? {
            Kind::Released(_) => Self::Released,
            Kind::Expired(_) => Self::Expired,
            Kind::Closed(_) => Self::Closed,
            Kind::Revoked(by) => Self::Revoked {
                operator: by.operator,
                reason: by.reason,
            },
            Kind::Evicted(by) => Self::Evicted {
                operator: by.operator,
                reason: by.reason,
            },
            Kind::Transferred(to) => Self::Transferred {
                to: fields::session(to, "end_cause.transferred")?,
            },
            Kind::PodEnded(ended) => {
                let PodEnded { uid, seen } = ended.try_into()?;
                Self::PodEnded { uid, seen }
            }
        })
    }
}

impl From<&SessionEnd> for pb::SessionEnd {
    fn from(cause: &SessionEnd) -> Self {
        use pb::session_end::Kind;
        let kind = match cause {
            SessionEnd::Closed => Kind::Closed(NOTHING),
            SessionEnd::Expired => Kind::Expired(NOTHING),
            SessionEnd::Evicted { operator, reason } => {
                Kind::Evicted(by_operator(operator, reason))
            }
            SessionEnd::PodEnded { uid, seen } => Kind::PodEnded(pod_ended(uid, *seen)),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::SessionEnd> for SessionEnd {
    type Error = DecodeError;

    fn try_from(cause: pb::SessionEnd) -> Result<Self, DecodeError> {
        use pb::session_end::Kind;
        Ok(match fields::there(cause.kind, "session_end.kind")? {
            Kind::Closed(_) => Self::Closed,
            Kind::Expired(_) => Self::Expired,
            Kind::Evicted(by) => Self::Evicted {
                operator: by.operator,
                reason: by.reason,
            },
            Kind::PodEnded(ended) => {
                let PodEnded { uid, seen } = ended.try_into()?;
                Self::PodEnded { uid, seen }
            }
        })
    }
}

impl From<&Granted> for pb::Granted {
    fn from(granted: &Granted) -> Self {
        Self {
            name: granted.name.as_str().into(),
            token: granted.token.get(),
            session: granted.session.get(),
            identity: granted.identity.as_str().into(),
            data: fields::data_bytes(&granted.data),
            request: granted.request.get(),
            index: granted.index,
            since: granted.since.0,
        }
    }
}

impl TryFrom<pb::Granted> for Granted {
    type Error = DecodeError;

    fn try_from(granted: pb::Granted) -> Result<Self, DecodeError> {
        Ok(Self {
            name: fields::lease_name(&granted.name, "granted.name")?,
            token: fields::token(granted.token, "granted.token")?,
            session: fields::session(granted.session, "granted.session")?,
            identity: fields::identity(&granted.identity, "granted.identity")?,
            data: fields::holder_data(&granted.data, "granted.data")?,
            request: fields::number(granted.request, "granted.request")?,
            index: granted.index,
            since: WallTime(granted.since),
        })
    }
}

impl From<&LostGrant> for pb::Lapsed {
    fn from(lost: &LostGrant) -> Self {
        Self {
            name: lost.name.as_str().into(),
            token: lost.token.get(),
            cause: Some((&lost.cause).into()),
        }
    }
}

impl TryFrom<pb::Lapsed> for LostGrant {
    type Error = DecodeError;

    fn try_from(lost: pb::Lapsed) -> Result<Self, DecodeError> {
        Ok(Self {
            name: fields::lease_name(&lost.name, "lost.name")?,
            token: fields::token(lost.token, "lost.token")?,
            cause: fields::there(lost.cause, "lost.cause")?.try_into()?,
        })
    }
}
