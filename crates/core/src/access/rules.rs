//! Rules: which principals may do what to which leases. What no rule allows is refused.

use alloc::collections::{BTreeMap, BTreeSet};
use core::fmt;

use super::pattern::{ByPattern, NamePattern, PrincipalPattern};
use super::principal::namespace_of;
use super::verb::Verb;
use crate::name::LeaseName;

/// The most rules of a cluster.
pub const RULES_MAX: usize = 4_096;

/// Allows principals a verb, and for which names if the verb takes any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// For whom.
    pub principals: PrincipalPattern,
    /// What.
    pub verb: Verb,
    /// For which leases; there exactly if [`Verb::takes_names`].
    pub names: Option<NamePattern>,
}

/// Why a rule makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InvalidRule {
    /// The verb takes names and there are none.
    NamesMissing,
    /// The verb takes no names and there are some.
    NamesNotTaken,
    /// `k8s/{namespace}/*` with principals that are not service accounts of one cluster.
    NoNamespace,
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NamesMissing => {
                "acquire, observe and revoke need names: a lease, a prefix as `team-a/*`, or `*`"
            }
            Self::NamesNotTaken => "configure, operate, backup and admin take no names",
            Self::NoNamespace => {
                "k8s/{namespace}/* needs principals that are service accounts: sa:ALIAS:*, \
                 sa:ALIAS:NAMESPACE/* or sa:ALIAS:NAMESPACE/NAME"
            }
        })
    }
}

impl core::error::Error for InvalidRule {}

impl Rule {
    /// Whether its parts fit together.
    ///
    /// # Errors
    /// [`InvalidRule`] says which do not.
    pub fn check(&self) -> Result<(), InvalidRule> {
        match (&self.names, self.verb.takes_names()) {
            (None, true) => Err(InvalidRule::NamesMissing),
            (Some(_), false) => Err(InvalidRule::NamesNotTaken),
            (Some(NamePattern::OwnNamespace), _) if !self.principals.is_service_accounts() => {
                Err(InvalidRule::NoNamespace)
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.principals, self.verb)?;
        match &self.names {
            Some(names) => write!(f, " {names}"),
            None => Ok(()),
        }
    }
}

/// For what a right is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// The whole cluster: for verbs that take no names.
    Cluster,
    /// One lease.
    Name(&'a LeaseName),
    /// Every lease whose name begins with this text, there or not; all there are if it is empty. A
    /// rule allows it only if it covers them all.
    Prefix(&'a str),
    /// At least one lease, whichever.
    Any,
}

/// What one pattern of principals is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Allowed {
    names: ByPattern<Option<Rule>>,
    /// For the names of the principal's own namespace.
    own_namespace: Option<Rule>,
    /// For the cluster, or for some name.
    any: Option<Rule>,
}

/// All rules, found by principal and name. Nothing is remembered of an answer, so none outlives
/// its rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    all: BTreeSet<Rule>,
    /// Follows from `all`.
    by_principal: ByPattern<BTreeMap<Verb, Allowed>>,
}

impl Rules {
    pub(crate) fn new(all: BTreeSet<Rule>) -> Self {
        let mut by_principal = ByPattern::<BTreeMap<Verb, Allowed>>::default();
        for rule in &all {
            let verbs = match &rule.principals {
                PrincipalPattern::Exact(principal) => by_principal.exact_mut(principal.as_str()),
                PrincipalPattern::Prefix(prefix) => by_principal.prefix_mut(prefix),
            };
            let allowed = verbs.entry(rule.verb).or_default();
            allowed.any.get_or_insert_with(|| rule.clone());
            let place = match &rule.names {
                None => continue,
                Some(NamePattern::Exact(name)) => allowed.names.exact_mut(name.as_str()),
                Some(NamePattern::Prefix(prefix)) => allowed.names.prefix_mut(prefix),
                Some(NamePattern::OwnNamespace) => &mut allowed.own_namespace,
            };
            *place = Some(rule.clone());
        }
        Self { all, by_principal }
    }

    pub(crate) fn all(&self) -> &BTreeSet<Rule> {
        &self.all
    }

    /// The rule that allows it, if one does.
    pub(crate) fn allowing(&self, principal: &str, verb: Verb, scope: Scope<'_>) -> Option<&Rule> {
        let verbs = self.by_principal.covering_principal(principal);
        let mut allowed = verbs.filter_map(|verbs| verbs.get(&verb));
        allowed.find_map(|allowed| allowed.rule(principal, scope))
    }
}

impl Allowed {
    fn rule(&self, principal: &str, scope: Scope<'_>) -> Option<&Rule> {
        let (mut rules, own) = match scope {
            Scope::Cluster | Scope::Any => return self.any.as_ref(),
            Scope::Name(name) => {
                let found = self.names.covering_name(name.as_str());
                (found.flatten().next(), name.as_str())
            }
            Scope::Prefix(prefix) => {
                let found = self.names.covering_all_under(prefix);
                (found.flatten().next(), prefix)
            }
        };
        if rules.is_none() && namespace_of(principal).is_some_and(|of| is_under(own, of)) {
            rules = self.own_namespace.as_ref();
        }
        rules
    }
}

/// Whether a name, or all names with this prefix, are under `k8s/NAMESPACE/`.
fn is_under(text: &str, namespace: &str) -> bool {
    let rest = text
        .strip_prefix("k8s/")
        .and_then(|rest| rest.strip_prefix(namespace));
    !namespace.is_empty() && rest.is_some_and(|rest| rest.starts_with('/'))
}
