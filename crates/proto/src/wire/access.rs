//! Who may do what.

use std::fmt;

use bytes::Bytes;
use ringfence_core::{
    ACCESS_CHANGES_MAX, Access, AccessChange, AuditRecord, ChangeAccess, ClusterId, ClusterToken,
    LeaseName, Mode, NamePattern, Principal, PrincipalLimits, PrincipalPattern, Rule, Scope, Verb,
};

use super::check;
use crate::{Refusal, v1};

/// The most acts of one page: about 2.6 MiB if each is as long as it may be.
pub const ACTS_PER_PAGE_MAX: u32 = 1_000;
/// The acts of a page, unless the request says a number.
pub const ACTS_PER_PAGE: u32 = 100;

const MODES: &str = "off, permissive or enforced";
const VERBS: &str = "acquire, observe, revoke, configure, operate, backup or admin";
const PRINCIPALS: &str = "a principal, what several begin with and a `*` behind `:` or `/`, or `*`";
const NAMES: &str = "a lease, what several begin with and a `*` behind `/`, `*`, or \
                     k8s/{namespace}/*";

/// The mode as the protocol says it.
#[must_use]
pub fn mode_to_wire(mode: Mode) -> v1::AccessMode {
    match mode {
        Mode::Off => v1::AccessMode::Off,
        Mode::Permissive => v1::AccessMode::Permissive,
        Mode::Enforced => v1::AccessMode::Enforced,
    }
}

/// The mode; `None` if it is not said, or is one of a later version.
#[must_use]
pub fn mode_from_wire(mode: v1::AccessMode) -> Option<Mode> {
    match mode {
        v1::AccessMode::Unspecified => None,
        v1::AccessMode::Off => Some(Mode::Off),
        v1::AccessMode::Permissive => Some(Mode::Permissive),
        v1::AccessMode::Enforced => Some(Mode::Enforced),
    }
}

/// The verb as the protocol says it.
#[must_use]
pub fn verb_to_wire(verb: Verb) -> v1::Verb {
    match verb {
        Verb::Acquire => v1::Verb::Acquire,
        Verb::Observe => v1::Verb::Observe,
        Verb::Revoke => v1::Verb::Revoke,
        Verb::Configure => v1::Verb::Configure,
        Verb::Operate => v1::Verb::Operate,
        Verb::Backup => v1::Verb::Backup,
        Verb::Admin => v1::Verb::Admin,
    }
}

fn verb_from_wire(raw: i32, field: &str) -> Result<Verb, Refusal> {
    Ok(match v1::Verb::try_from(raw) {
        Ok(v1::Verb::Acquire) => Verb::Acquire,
        Ok(v1::Verb::Observe) => Verb::Observe,
        Ok(v1::Verb::Revoke) => Verb::Revoke,
        Ok(v1::Verb::Configure) => Verb::Configure,
        Ok(v1::Verb::Operate) => Verb::Operate,
        Ok(v1::Verb::Backup) => Verb::Backup,
        Ok(v1::Verb::Admin) => Verb::Admin,
        Ok(v1::Verb::Unspecified) => return Err(Refusal::missing(field, VERBS)),
        Err(_) => return Err(Refusal::invalid(field, raw, VERBS)),
    })
}

/// A rule as the protocol says it.
#[must_use]
pub fn rule_to_wire(rule: &Rule) -> v1::Rule {
    let names = rule.names.as_ref();
    v1::Rule {
        principals: rule.principals.to_string(),
        verb: verb_to_wire(rule.verb).into(),
        names: names.map(ToString::to_string).unwrap_or_default(),
    }
}

/// A rule whose parts fit together. `field` is what the message is called in the request, or the
/// answer, that it comes from.
///
/// # Errors
/// A refusal names the part that is not as it has to be, and what is allowed.
pub fn rule_from_wire(rule: &v1::Rule, field: &str) -> Result<Rule, Refusal> {
    let part = |part| format!("{field}.{part}");
    let principals = PrincipalPattern::parse(&rule.principals)
        .map_err(|why| refuse(&part("principals"), &rule.principals, PRINCIPALS, why))?;
    let names = (!rule.names.is_empty()).then(|| NamePattern::parse(&rule.names));
    let names = names
        .transpose()
        .map_err(|why| refuse(&part("names"), &rule.names, NAMES, why))?;
    let parsed = Rule {
        principals,
        verb: verb_from_wire(rule.verb, &part("verb"))?,
        names,
    };
    match parsed.check() {
        Ok(()) => Ok(parsed),
        Err(why) => Err(Refusal::invalid(
            &part("names"),
            check::shown(&rule.names),
            why,
        )),
    }
}

fn refuse(field: &str, offered: &str, allowed: &str, why: impl fmt::Display) -> Refusal {
    check::refuse(field, &check::shown(offered), allowed, why)
}

fn principal(raw: &str, field: &str) -> Result<Principal, Refusal> {
    let allowed = "a principal, as `access whoami` and `access list` show them";
    Principal::parse(raw).map_err(|why| refuse(field, raw, allowed, why))
}

/// The command that changes rights.
///
/// # Errors
/// A refusal names the part that is not as it has to be. Whether the whole makes sense is for the
/// state machine to say.
pub fn change_access_from_wire(request: v1::ChangeAccessRequest) -> Result<ChangeAccess, Refusal> {
    let cluster = check::sixteen(&request.cluster_id, "cluster_id")?;
    let count = request.changes.len();
    if !(1..=ACCESS_CHANGES_MAX).contains(&count) {
        let allowed = format!("1 to {ACCESS_CHANGES_MAX} changes");
        let offered = format!("{count} changes");
        return Err(Refusal::invalid("changes", offered, allowed));
    }
    let changes = request.changes.into_iter().enumerate();
    let changes = changes.map(|(at, change)| change_from_wire(change, &format!("changes[{at}]")));
    Ok(ChangeAccess {
        cluster: ClusterId::new(cluster),
        based_on: request.based_on,
        changes: changes.collect::<Result<_, _>>()?,
    })
}

fn change_from_wire(change: v1::AccessChange, at: &str) -> Result<AccessChange, Refusal> {
    use v1::access_change::Change;
    let field = |name| format!("{at}.{name}");
    let Some(change) = change.change else {
        let allowed = "one of add_rule, remove_rule, ban, unban, add_token, remove_tokens, \
                       set_mode and set_limits";
        return Err(Refusal::missing(at, allowed));
    };
    Ok(match change {
        Change::AddRule(rule) => AccessChange::AddRule(rule_from_wire(&rule, &field("add_rule"))?),
        Change::RemoveRule(rule) => {
            AccessChange::RemoveRule(rule_from_wire(&rule, &field("remove_rule"))?)
        }
        Change::Ban(raw) => AccessChange::Ban(principal(&raw, &field("ban"))?),
        Change::Unban(raw) => AccessChange::Unban(principal(&raw, &field("unban"))?),
        Change::AddToken(token) => AccessChange::AddToken(new_token(&token, &field("add_token"))?),
        Change::RemoveTokens(raw) => {
            AccessChange::RemoveTokens(token_principal(&raw, &field("remove_tokens"))?)
        }
        Change::SetMode(raw) => AccessChange::SetMode(mode(raw, &field("set_mode"))?),
        Change::SetLimits(limits) => {
            AccessChange::SetLimits(limits_from_wire(&limits, &field("set_limits"))?)
        }
    })
}

fn limits_from_wire(limits: &v1::PrincipalLimits, at: &str) -> Result<PrincipalLimits, Refusal> {
    for (name, offered) in [("sessions", limits.sessions), ("leases", limits.leases)] {
        if offered == 0 {
            let field = format!("{at}.{name}");
            return Err(Refusal::invalid(&field, offered, "1 or more"));
        }
    }
    Ok(PrincipalLimits {
        sessions: limits.sessions,
        leases: limits.leases,
    })
}

fn mode(raw: i32, field: &str) -> Result<Mode, Refusal> {
    let known = v1::AccessMode::try_from(raw).ok();
    known
        .and_then(mode_from_wire)
        .ok_or_else(|| Refusal::invalid(field, raw, MODES))
}

fn new_token(token: &v1::NewToken, field: &str) -> Result<ClusterToken, Refusal> {
    let bytes = token.digest.len();
    let digest = token.digest.as_ref().try_into().map_err(|_| {
        let offered = format!("a value of {bytes} bytes");
        let allowed = "the 32 bytes of a SHA-256 digest";
        Refusal::invalid(&format!("{field}.digest"), offered, allowed)
    })?;
    Ok(ClusterToken {
        principal: token_principal(&token.principal, &format!("{field}.principal"))?,
        digest,
        expires: (token.expires_unix > 0).then_some(token.expires_unix),
    })
}

fn token_principal(raw: &str, field: &str) -> Result<Principal, Refusal> {
    let parsed = principal(raw, field)?;
    match raw.starts_with("token:") {
        true => Ok(parsed),
        false => Err(Refusal::invalid(field, check::shown(raw), "token:NAME")),
    }
}

/// Everything there is about rights, digests of tokens and the cluster left out.
#[must_use]
pub fn access_to_wire(access: &Access) -> v1::GetAccessResponse {
    let token = |(id, token): (u64, &ClusterToken)| v1::ClusterToken {
        id,
        principal: token.principal.as_str().into(),
        expires_unix: token.expires.unwrap_or_default(),
    };
    v1::GetAccessResponse {
        mode: mode_to_wire(access.mode()).into(),
        access_index: access.set_at(),
        rules: access.rules().map(rule_to_wire).collect(),
        bans: access.bans().map(|ban| ban.as_str().into()).collect(),
        tokens: access.tokens().map(token).collect(),
        cluster_id: Bytes::new(),
        limits: Some(v1::PrincipalLimits {
            sessions: access.limits().sessions,
            leases: access.limits().leases,
        }),
    }
}

/// A question whether something is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestedAccess {
    /// To whom; the caller if there is none.
    pub principal: Option<Principal>,
    /// What.
    pub verb: Verb,
    names: Tested,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tested {
    Cluster,
    Name(LeaseName),
    Prefix(String),
}

impl TestedAccess {
    /// For what.
    #[must_use]
    pub fn scope(&self) -> Scope<'_> {
        match &self.names {
            Tested::Cluster => Scope::Cluster,
            Tested::Name(name) => Scope::Name(name),
            Tested::Prefix(prefix) => Scope::Prefix(prefix),
        }
    }
}

/// The question of a `TestAccess`.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn test_access_from_wire(request: &v1::TestAccessRequest) -> Result<TestedAccess, Refusal> {
    let raw = request.principal.as_str();
    let principal = (!raw.is_empty()).then(|| principal(raw, "principal"));
    let verb = verb_from_wire(request.verb, "verb")?;
    Ok(TestedAccess {
        principal: principal.transpose()?,
        verb,
        names: tested(&request.names, verb)?,
    })
}

fn tested(raw: &str, verb: Verb) -> Result<Tested, Refusal> {
    const FIELD: &str = "names";
    match (verb.takes_names(), raw.is_empty()) {
        (false, true) => return Ok(Tested::Cluster),
        (false, false) => {
            let allowed = format!("none: {verb} is for the whole cluster");
            return Err(Refusal::invalid(FIELD, check::shown(raw), allowed));
        }
        (true, true) => {
            let allowed = "a lease, or what several begin with and a `*`";
            return Err(Refusal::missing(FIELD, allowed));
        }
        (true, false) => {}
    }
    let Some(prefix) = raw.strip_suffix('*') else {
        return check::lease_name(raw, FIELD).map(Tested::Name);
    };
    let begun = prefix.strip_suffix('/').unwrap_or(prefix);
    if !begun.is_empty() || prefix == "/" {
        check::lease_name(begun, FIELD)?;
    }
    Ok(Tested::Prefix(prefix.into()))
}

/// An act as the protocol says it.
#[must_use]
pub fn act_to_wire(record: &AuditRecord) -> v1::Act {
    let principal = record.principal.as_ref();
    v1::Act {
        index: record.index,
        at_unix_ms: record.wall.0,
        principal: principal.map(|who| who.as_str().into()).unwrap_or_default(),
        node_id: record.node,
        act: record.act.clone(),
        reason: record.reason.clone(),
    }
}

/// Which acts are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActsAsk {
    /// The cluster that the index belongs to, if it is said.
    pub cluster: Option<ClusterId>,
    /// Acts behind this log index.
    pub after: u64,
    /// The most acts of the page, 1 to [`ACTS_PER_PAGE_MAX`].
    pub limit: usize,
}

/// The question of a `ListActs`.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn list_acts_from_wire(request: &v1::ListActsRequest) -> Result<ActsAsk, Refusal> {
    let limit = check::page_size(request.limit, ACTS_PER_PAGE, ACTS_PER_PAGE_MAX, "limit")?;
    let cluster = match request.cluster_id.is_empty() {
        true => None,
        false => Some(check::sixteen(&request.cluster_id, "cluster_id")?),
    };
    Ok(ActsAsk {
        cluster: cluster.map(ClusterId::new),
        after: request.after,
        limit: limit as usize,
    })
}
