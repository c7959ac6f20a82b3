//! Rejections: part of outcomes, and remembered in snapshots.

use ringfence_core::{ClusterTime, Holder, InvalidSetting, Limit, Millis, Rejection};

use super::access::invalid_access;
use super::pb;
use super::pb::rejection::Kind;
use super::shared::NOTHING;
use crate::{DecodeError, fields};

/// The names that an [`InvalidSetting`] can have. It carries a static text, so it comes back from
/// bytes as one of these.
const SETTINGS: [&str; 8] = [
    "ttl_min",
    "ttl_max",
    "idle_retention",
    "session_leases_max",
    "lease_waiters_max",
    "leases_max",
    "sessions_max",
    "lease_api_factor",
];

impl From<&Rejection> for pb::Rejection {
    fn from(rejection: &Rejection) -> Self {
        let kind = match rejection {
            Rejection::NotReady => Kind::NotReady(NOTHING),
            Rejection::AlreadyFormed { cluster } => Kind::AlreadyFormed(cluster.into()),
            Rejection::TokenFloorTooHigh { offered } => Kind::TokenFloorTooHigh(*offered),
            Rejection::InvalidSetting(InvalidSetting {
                name,
                offered,
                min,
                max,
            }) => Kind::InvalidSetting(pb::InvalidSetting {
                name: (*name).into(),
                offered: *offered,
                min: *min,
                max: *max,
            }),
            Rejection::StaleSettings { set_at } => Kind::StaleSettings(*set_at),
            Rejection::InvalidTtl { offered, min, max } => Kind::InvalidTtl(pb::InvalidTtl {
                offered: offered.0,
                min: min.0,
                max: max.0,
            }),
            Rejection::InvalidWait { offered } => Kind::InvalidWait(offered.0),
            Rejection::InvalidLockDelay { offered } => Kind::InvalidLockDelay(offered.0),
            Rejection::OpenTooOld { seen, now } => Kind::OpenTooOld(pb::OpenTooOld {
                seen: seen.0,
                now: now.0,
            }),
            Rejection::OpenIdUsed => Kind::OpenIdUsed(NOTHING),
            Rejection::SessionExpired { cause } => Kind::SessionExpired(cause.as_ref().into()),
            Rejection::WrongSecret => Kind::WrongSecret(NOTHING),
            Rejection::StaleRequest { number, lowest } => Kind::StaleRequest(pb::NumberBelow {
                number: number.get(),
                lowest: lowest.get(),
            }),
            Rejection::RequestMismatch { number } => Kind::RequestMismatch(number.get()),
            Rejection::RequestVoided => Kind::RequestVoided(NOTHING),
            Rejection::TooManyUnconfirmed { number, lowest } => {
                Kind::TooManyUnconfirmed(pb::NumberBelow {
                    number: number.get(),
                    lowest: lowest.get(),
                })
            }
            Rejection::Held { holder, mine } => Kind::Held(pb::Held {
                session: holder.session.get(),
                identity: holder.identity.as_str().into(),
                token: holder.token.get(),
                data: fields::data_bytes(&holder.data),
                mine: *mine,
            }),
            Rejection::Queued { waiters } => Kind::Queued(*waiters),
            Rejection::LockDelay { remaining } => Kind::LockDelay(remaining.0),
            Rejection::Revoking { remaining } => Kind::Revoking(remaining.0),
            Rejection::QuietTime { remaining } => Kind::QuietTime(remaining.0),
            Rejection::StaleToken {
                name,
                offered,
                current,
            } => Kind::StaleToken(pb::StaleToken {
                name: name.as_str().into(),
                offered: offered.get(),
                current: fields::token_or_zero(*current),
            }),
            Rejection::NotHolder { name, offered } => Kind::NotHolder(pb::NameToken {
                name: name.as_str().into(),
                token: offered.get(),
            }),
            Rejection::NotWaiting { name } => Kind::NotWaiting(name.as_str().into()),
            Rejection::Limit(limit) => Kind::Limit((*limit).into()),
            Rejection::TokensExhausted => Kind::TokensExhausted(NOTHING),
            Rejection::PermissionDenied { needed } => Kind::PermissionDenied((&**needed).into()),
            Rejection::Banned { principal } => Kind::Banned(principal.as_str().into()),
            Rejection::TokenRevoked { id } => Kind::TokenRevoked(*id),
            Rejection::OtherPrincipal => Kind::OtherPrincipal(NOTHING),
            Rejection::StaleAccess { set_at } => Kind::StaleAccess(*set_at),
            Rejection::InvalidAccess(why) => {
                Kind::InvalidAccess(pb::InvalidAccess::from(*why).into())
            }
            Rejection::WouldLockOut => Kind::WouldLockOut(NOTHING),
            Rejection::ObjectChanged { present } => {
                Kind::ObjectChanged(present.unwrap_or_default())
            }
            Rejection::Owing { remaining } => Kind::Owing(remaining.0),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::Rejection> for Rejection {
    type Error = DecodeError;

    fn try_from(rejection: pb::Rejection) -> Result<Self, DecodeError> {
        Ok(match fields::there(rejection.kind, "rejection.kind")? {
            Kind::NotReady(_) => Self::NotReady,
            Kind::AlreadyFormed(cluster) => Self::AlreadyFormed {
                cluster: cluster.into(),
            },
            Kind::TokenFloorTooHigh(offered) => Self::TokenFloorTooHigh { offered },
            Kind::InvalidSetting(setting) => Self::InvalidSetting(setting.try_into()?),
            Kind::StaleSettings(set_at) => Self::StaleSettings { set_at },
            Kind::InvalidTtl(ttl) => Self::InvalidTtl {
                offered: Millis(ttl.offered),
                min: Millis(ttl.min),
                max: Millis(ttl.max),
            },
            Kind::InvalidWait(offered) => Self::InvalidWait {
                offered: Millis(offered),
            },
            Kind::InvalidLockDelay(offered) => Self::InvalidLockDelay {
                offered: Millis(offered),
            },
            Kind::OpenTooOld(open) => Self::OpenTooOld {
                seen: ClusterTime(open.seen),
                now: ClusterTime(open.now),
            },
            Kind::OpenIdUsed(_) => Self::OpenIdUsed,
            Kind::SessionExpired(closed) => Self::SessionExpired {
                cause: closed.try_into()?,
            },
            Kind::WrongSecret(_) => Self::WrongSecret,
            Kind::StaleRequest(below) => Self::StaleRequest {
                number: fields::number(below.number, "stale_request.number")?,
                lowest: fields::number(below.lowest, "stale_request.lowest")?,
            },
            Kind::RequestMismatch(number) => Self::RequestMismatch {
                number: fields::number(number, "request_mismatch")?,
            },
            Kind::RequestVoided(_) => Self::RequestVoided,
            Kind::TooManyUnconfirmed(below) => Self::TooManyUnconfirmed {
                number: fields::number(below.number, "too_many_unconfirmed.number")?,
                lowest: fields::number(below.lowest, "too_many_unconfirmed.lowest")?,
            },
            Kind::Held(held) => {
                let mine = held.mine;
                Self::Held {
                    holder: held.try_into()?,
                    mine,
                }
            }
            Kind::Queued(waiters) => Self::Queued { waiters },
            Kind::LockDelay(remaining) => Self::LockDelay {
                remaining: Millis(remaining),
            },
            Kind::Revoking(remaining) => Self::Revoking {
                remaining: Millis(remaining),
            },
            Kind::QuietTime(remaining) => Self::QuietTime {
                remaining: Millis(remaining),
            },
            Kind::StaleToken(stale) => Self::StaleToken {
                name: fields::lease_name(&stale.name, "stale_token.name")?,
                offered: fields::token(stale.offered, "stale_token.offered")?,
                current: fields::token_or_none(stale.current, "stale_token.current")?,
            },
            Kind::NotHolder(not) => Self::NotHolder {
                name: fields::lease_name(&not.name, "not_holder.name")?,
                offered: fields::token(not.token, "not_holder.token")?,
            },
            Kind::NotWaiting(name) => Self::NotWaiting {
                name: fields::lease_name(&name, "not_waiting")?,
            },
            Kind::Limit(limit) => Self::Limit(limit.try_into()?),
            Kind::TokensExhausted(_) => Self::TokensExhausted,
            Kind::PermissionDenied(needed) => Self::PermissionDenied {
                needed: Box::new(needed.try_into()?),
            },
            Kind::Banned(principal) => Self::Banned {
                principal: fields::principal(&principal, "banned")?,
            },
            Kind::TokenRevoked(id) => Self::TokenRevoked { id },
            Kind::OtherPrincipal(_) => Self::OtherPrincipal,
            Kind::StaleAccess(set_at) => Self::StaleAccess { set_at },
            Kind::InvalidAccess(why) => Self::InvalidAccess(invalid_access(why)?),
            Kind::WouldLockOut(_) => Self::WouldLockOut,
            Kind::ObjectChanged(present) => Self::ObjectChanged {
                present: (present > 0).then_some(present),
            },
            Kind::Owing(remaining) => Self::Owing {
                remaining: Millis(remaining),
            },
        })
    }
}

impl TryFrom<pb::InvalidSetting> for InvalidSetting {
    type Error = DecodeError;

    fn try_from(setting: pb::InvalidSetting) -> Result<Self, DecodeError> {
        let pb::InvalidSetting {
            name,
            offered,
            min,
            max,
        } = setting;
        let known = SETTINGS.into_iter().find(|known| **known == *name);
        let name = known.ok_or_else(|| {
            DecodeError::invalid("invalid_setting.name", format!("{name:?} is no setting"))
        })?;
        Ok(Self {
            name,
            offered,
            min,
            max,
        })
    }
}

impl TryFrom<pb::Held> for Holder {
    type Error = DecodeError;

    fn try_from(held: pb::Held) -> Result<Self, DecodeError> {
        Ok(Self {
            session: fields::session(held.session, "held.session")?,
            identity: fields::identity(&held.identity, "held.identity")?,
            token: fields::token(held.token, "held.token")?,
            data: fields::holder_data(&held.data, "held.data")?,
        })
    }
}

impl From<Limit> for pb::Limit {
    fn from(limit: Limit) -> Self {
        use pb::limit::Kind;
        let kind = match limit {
            Limit::SessionLeases(max) => Kind::SessionLeases(max),
            Limit::LeaseWaiters(max) => Kind::LeaseWaiters(max),
            Limit::Leases(max) => Kind::Leases(max),
            Limit::Sessions(max) => Kind::Sessions(max),
            Limit::PrincipalSessions(max) => Kind::PrincipalSessions(max),
            Limit::PrincipalLeases(max) => Kind::PrincipalLeases(max),
            Limit::Objects(max) => Kind::Objects(max),
            Limit::NamespaceObjects(max) => Kind::NamespaceObjects(max),
            Limit::PrincipalObjects(max) => Kind::PrincipalObjects(max),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::Limit> for Limit {
    type Error = DecodeError;

    fn try_from(limit: pb::Limit) -> Result<Self, DecodeError> {
        use pb::limit::Kind;
        Ok(match fields::there(limit.kind, "limit.kind")? {
            Kind::SessionLeases(max) => Self::SessionLeases(max),
            Kind::LeaseWaiters(max) => Self::LeaseWaiters(max),
            Kind::Leases(max) => Self::Leases(max),
            Kind::Sessions(max) => Self::Sessions(max),
            Kind::PrincipalSessions(max) => Self::PrincipalSessions(max),
            Kind::PrincipalLeases(max) => Self::PrincipalLeases(max),
            Kind::Objects(max) => Self::Objects(max),
            Kind::NamespaceObjects(max) => Self::NamespaceObjects(max),
            Kind::PrincipalObjects(max) => Self::PrincipalObjects(max),
        })
    }
}
