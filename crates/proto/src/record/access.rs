//! Who asks, and who may do what.

use ringfence_core::{
    AccessChange, AccessRecord, AuditRecord, Called, Caller, ChangeAccess, ClusterToken, Command,
    InvalidAccess, InvalidRule, Mode, NamePattern, Principal, PrincipalLimits, PrincipalPattern,
    Rule, Verb, WallTime,
};

use super::id::id;
use super::pb;
use crate::{DecodeError, fields};

impl From<&Called> for pb::Called {
    fn from(called: &Called) -> Self {
        Self {
            caller: Some((&called.caller).into()),
            command: Some(Box::new((&called.command).into())),
        }
    }
}

impl TryFrom<pb::Called> for Called {
    type Error = DecodeError;

    fn try_from(called: pb::Called) -> Result<Self, DecodeError> {
        let command = *fields::there(called.command, "called.command")?;
        let command: Command = fields::there(command.kind, "called.command.kind")?.try_into()?;
        // One caller asks for one thing; without this the nesting would have no end.
        if !command.is_asked() {
            let why = "clients cannot ask for this command";
            return Err(DecodeError::invalid("called.command", why));
        }
        Ok(Self {
            caller: fields::there(called.caller, "called.caller")?.try_into()?,
            command,
        })
    }
}

impl From<&Caller> for pb::Caller {
    fn from(caller: &Caller) -> Self {
        Self {
            principal: caller.principal.as_str().into(),
            token: caller.token.unwrap_or_default(),
            node: caller.node,
        }
    }
}

impl TryFrom<pb::Caller> for Caller {
    type Error = DecodeError;

    fn try_from(caller: pb::Caller) -> Result<Self, DecodeError> {
        Ok(Self {
            principal: fields::principal(&caller.principal, "caller.principal")?,
            token: (caller.token > 0).then_some(caller.token),
            node: caller.node,
        })
    }
}

impl From<&ChangeAccess> for pb::ChangeAccess {
    fn from(change: &ChangeAccess) -> Self {
        Self {
            cluster: Some((&change.cluster).into()),
            based_on: change.based_on,
            changes: change.changes.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<pb::ChangeAccess> for ChangeAccess {
    type Error = DecodeError;

    fn try_from(change: pb::ChangeAccess) -> Result<Self, DecodeError> {
        let changes = change.changes.into_iter().map(TryInto::try_into);
        Ok(Self {
            cluster: id(change.cluster, "change_access.cluster")?,
            based_on: change.based_on,
            changes: changes.collect::<Result<_, _>>()?,
        })
    }
}

impl From<&AccessChange> for pb::AccessChange {
    fn from(change: &AccessChange) -> Self {
        use pb::access_change::Kind;
        let kind = match change {
            AccessChange::AddRule(rule) => Kind::AddRule(rule.into()),
            AccessChange::RemoveRule(rule) => Kind::RemoveRule(rule.into()),
            AccessChange::Ban(principal) => Kind::Ban(principal.as_str().into()),
            AccessChange::Unban(principal) => Kind::Unban(principal.as_str().into()),
            AccessChange::AddToken(token) => Kind::AddToken(token.into()),
            AccessChange::RemoveTokens(of) => Kind::RemoveTokens(of.as_str().into()),
            AccessChange::SetMode(mode) => Kind::SetMode(pb::Mode::from(*mode).into()),
            AccessChange::SetLimits(limits) => Kind::SetLimits(limits.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::AccessChange> for AccessChange {
    type Error = DecodeError;

    fn try_from(change: pb::AccessChange) -> Result<Self, DecodeError> {
        use pb::access_change::Kind;
        Ok(match fields::there(change.kind, "access_change.kind")? {
            Kind::AddRule(rule) => Self::AddRule(rule.try_into()?),
            Kind::RemoveRule(rule) => Self::RemoveRule(rule.try_into()?),
            Kind::Ban(principal) => Self::Ban(fields::principal(&principal, "ban")?),
            Kind::Unban(principal) => Self::Unban(fields::principal(&principal, "unban")?),
            Kind::AddToken(token) => Self::AddToken(token.try_into()?),
            Kind::RemoveTokens(of) => Self::RemoveTokens(fields::principal(&of, "remove_tokens")?),
            Kind::SetMode(mode) => Self::SetMode(mode_of(mode, "set_mode")?),
            Kind::SetLimits(limits) => Self::SetLimits(limits.into()),
        })
    }
}

impl From<&PrincipalLimits> for pb::PrincipalLimits {
    fn from(limits: &PrincipalLimits) -> Self {
        let PrincipalLimits { sessions, leases } = *limits;
        Self { sessions, leases }
    }
}

impl From<pb::PrincipalLimits> for PrincipalLimits {
    fn from(limits: pb::PrincipalLimits) -> Self {
        let pb::PrincipalLimits { sessions, leases } = limits;
        Self { sessions, leases }
    }
}

impl From<&Rule> for pb::Rule {
    fn from(rule: &Rule) -> Self {
        Self {
            principals: rule.principals.to_string(),
            verb: pb::Verb::from(rule.verb).into(),
            names: rule
                .names
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        }
    }
}

impl TryFrom<pb::Rule> for Rule {
    type Error = DecodeError;

    fn try_from(rule: pb::Rule) -> Result<Self, DecodeError> {
        let principals = PrincipalPattern::parse(&rule.principals);
        let names = (!rule.names.is_empty()).then(|| NamePattern::parse(&rule.names));
        Ok(Self {
            principals: principals.map_err(|why| DecodeError::invalid("rule.principals", why))?,
            verb: verb_of(rule.verb, "rule.verb")?,
            names: names
                .transpose()
                .map_err(|why| DecodeError::invalid("rule.names", why))?,
        })
    }
}

impl From<&ClusterToken> for pb::ClusterToken {
    fn from(token: &ClusterToken) -> Self {
        Self {
            principal: token.principal.as_str().into(),
            digest: token.digest.to_vec().into(),
            expires: token.expires.unwrap_or_default(),
        }
    }
}

impl TryFrom<pb::ClusterToken> for ClusterToken {
    type Error = DecodeError;

    fn try_from(token: pb::ClusterToken) -> Result<Self, DecodeError> {
        let bytes = token.digest.len();
        let digest = token.digest.as_ref().try_into().map_err(|_| {
            let why = format!("{bytes} bytes; a SHA-256 digest has 32");
            DecodeError::invalid("cluster_token.digest", why)
        })?;
        Ok(Self {
            principal: fields::principal(&token.principal, "cluster_token.principal")?,
            digest,
            expires: (token.expires > 0).then_some(token.expires),
        })
    }
}

impl From<&AccessRecord> for pb::Access {
    fn from(record: &AccessRecord) -> Self {
        use pb::access::Kind;
        let kind = match record {
            AccessRecord::Mode {
                mode,
                limits,
                set_at,
            } => Kind::Mode(pb::AccessMode {
                limits: Some(limits.into()),
                mode: pb::Mode::from(*mode).into(),
                set_at: *set_at,
            }),
            AccessRecord::Rule(rule) => Kind::Rule(rule.into()),
            AccessRecord::Ban(principal) => Kind::Ban(principal.as_str().into()),
            AccessRecord::Token { id, token } => Kind::Token(pb::AccessToken {
                id: *id,
                token: Some(token.into()),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::Access> for AccessRecord {
    type Error = DecodeError;

    fn try_from(record: pb::Access) -> Result<Self, DecodeError> {
        use pb::access::Kind;
        Ok(match fields::there(record.kind, "access.kind")? {
            Kind::Mode(pb::AccessMode {
                mode,
                limits,
                set_at,
            }) => Self::Mode {
                limits: fields::there(limits, "access_mode.limits")?.into(),
                mode: mode_of(mode, "access_mode.mode")?,
                set_at,
            },
            Kind::Rule(rule) => Self::Rule(rule.try_into()?),
            Kind::Ban(principal) => Self::Ban(fields::principal(&principal, "access.ban")?),
            Kind::Token(pb::AccessToken { id, token }) => Self::Token {
                id,
                token: fields::there(token, "access_token.token")?.try_into()?,
            },
        })
    }
}

/// Both ways between an enumeration of the core and one of the format.
macro_rules! same {
    ($core:ident, $of:ident: $($variant:ident)*) => {
        impl From<$core> for pb::$core {
            fn from(value: $core) -> Self {
                match value { $($core::$variant => Self::$variant,)* }
            }
        }

        pub(super) fn $of(raw: i32, field: &'static str) -> Result<$core, DecodeError> {
            match pb::$core::try_from(raw) {
                $(Ok(pb::$core::$variant) => Ok($core::$variant),)*
                Ok(pb::$core::Unspecified) => Err(DecodeError::Missing { field }),
                Err(_) => Err(DecodeError::invalid(field, format!("{raw} has no meaning"))),
            }
        }
    };
}

same!(Mode, mode_of: Off Permissive Enforced);
same!(Verb, verb_of: Acquire Observe Revoke Configure Operate Backup Admin);

impl From<InvalidAccess> for pb::InvalidAccess {
    fn from(why: InvalidAccess) -> Self {
        match why {
            InvalidAccess::Rule(InvalidRule::NamesMissing) => Self::NamesMissing,
            InvalidAccess::Rule(InvalidRule::NamesNotTaken) => Self::NamesNotTaken,
            InvalidAccess::Rule(InvalidRule::NoNamespace) => Self::NoNamespace,
            InvalidAccess::Changes => Self::Changes,
            InvalidAccess::TooManyRules => Self::TooManyRules,
            InvalidAccess::TooManyBans => Self::TooManyBans,
            InvalidAccess::TooManyTokens => Self::TooManyTokens,
            InvalidAccess::TokenPrincipal => Self::TokenPrincipal,
            InvalidAccess::BanLocal => Self::BanLocal,
            InvalidAccess::LevelTooLow => Self::LevelTooLow,
            InvalidAccess::OtherCluster => Self::OtherCluster,
            InvalidAccess::LimitOfZero => Self::LimitOfZero,
        }
    }
}

pub(super) fn invalid_access(raw: i32) -> Result<InvalidAccess, DecodeError> {
    use pb::InvalidAccess as Pb;
    let field = "invalid_access";
    Ok(match Pb::try_from(raw) {
        Ok(Pb::NamesMissing) => InvalidAccess::Rule(InvalidRule::NamesMissing),
        Ok(Pb::NamesNotTaken) => InvalidAccess::Rule(InvalidRule::NamesNotTaken),
        Ok(Pb::NoNamespace) => InvalidAccess::Rule(InvalidRule::NoNamespace),
        Ok(Pb::Changes) => InvalidAccess::Changes,
        Ok(Pb::TooManyRules) => InvalidAccess::TooManyRules,
        Ok(Pb::TooManyBans) => InvalidAccess::TooManyBans,
        Ok(Pb::TooManyTokens) => InvalidAccess::TooManyTokens,
        Ok(Pb::TokenPrincipal) => InvalidAccess::TokenPrincipal,
        Ok(Pb::BanLocal) => InvalidAccess::BanLocal,
        Ok(Pb::LevelTooLow) => InvalidAccess::LevelTooLow,
        Ok(Pb::OtherCluster) => InvalidAccess::OtherCluster,
        Ok(Pb::LimitOfZero) => InvalidAccess::LimitOfZero,
        Ok(Pb::Unspecified) => return Err(DecodeError::Missing { field }),
        Err(_) => return Err(DecodeError::invalid(field, format!("{raw} has no meaning"))),
    })
}

impl From<&AuditRecord> for pb::Audit {
    fn from(act: &AuditRecord) -> Self {
        Self {
            index: act.index,
            wall: act.wall.0,
            principal: text_of(act.principal.as_ref()),
            node: act.node,
            act: act.act.clone(),
            reason: act.reason.clone(),
        }
    }
}

impl TryFrom<pb::Audit> for AuditRecord {
    type Error = DecodeError;

    fn try_from(act: pb::Audit) -> Result<Self, DecodeError> {
        Ok(Self {
            index: act.index,
            wall: WallTime(act.wall),
            principal: principal_or_none(&act.principal, "audit.principal")?,
            node: act.node,
            act: act.act,
            reason: act.reason,
        })
    }
}

/// A principal, empty if none was proven.
pub(in crate::record) fn text_of(principal: Option<&Principal>) -> String {
    principal
        .map(|principal| principal.as_str().into())
        .unwrap_or_default()
}

/// The principal in such a text.
pub(in crate::record) fn principal_or_none(
    raw: &str,
    field: &'static str,
) -> Result<Option<Principal>, DecodeError> {
    (!raw.is_empty())
        .then(|| fields::principal(raw, field))
        .transpose()
}
