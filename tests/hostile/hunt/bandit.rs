//! Who is hostile: the credential that it shows, and what its rules allow.

use ringfence_core::{
    AccessRecord, LeaseName, NamePattern, Principal, PrincipalPattern, Rule, Verb,
};
use ringfence_model::rights::{Rights, To};

/// The names that the rule of hostile clients gives them.
pub(super) const OWN: &str = "team-a/";

/// What a hostile client shows with each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Nothing.
    Nothing,
    /// This token, which proves its principal.
    Token(String),
    /// A header that proves nothing, another one each time.
    Garbage,
    /// The token of a principal that is banned, or one that was revoked.
    Barred(String),
}

/// A hostile client.
#[derive(Clone)]
pub(super) struct Bandit {
    /// For figures.
    pub(super) name: &'static str,
    pub(super) shown: Shown,
    /// Who the cluster takes it for.
    pub(super) principal: Option<Principal>,
    /// Whether it has the rule `acquire team-a/*`.
    pub(super) ruled: bool,
    rights: Rights,
}

impl Bandit {
    /// One whose credential proves nothing, or a principal without a rule.
    pub(super) fn without_rights(
        name: &'static str,
        shown: Shown,
        principal: Option<&str>,
    ) -> Self {
        Self::new(name, shown, principal, false)
    }

    /// One that may acquire what begins with [`OWN`].
    pub(super) fn with_small_right(name: &'static str, token: String, principal: &str) -> Self {
        Self::new(name, Shown::Token(token), Some(principal), true)
    }

    fn new(name: &'static str, shown: Shown, principal: Option<&str>, ruled: bool) -> Self {
        let principal = principal.map(|text| Principal::parse(text).unwrap());
        let rule = |principal: &Principal| {
            AccessRecord::Rule(Rule {
                principals: PrincipalPattern::Exact(principal.clone()),
                verb: Verb::Acquire,
                names: Some(NamePattern::parse(&format!("{OWN}*")).unwrap()),
            })
        };
        let rules: Vec<_> = principal.iter().filter(|_| ruled).map(rule).collect();
        Self {
            name,
            shown,
            principal,
            ruled,
            rights: Rights::of(&rules),
        }
    }

    /// Whether no request of it may be answered with anything but a refusal.
    pub(super) fn is_barred(&self) -> bool {
        matches!(self.shown, Shown::Garbage | Shown::Barred(_))
    }

    /// Whether it may do this to that lease, by the model.
    pub(super) fn may(&self, verb: Verb, name: &str) -> bool {
        let Ok(name) = LeaseName::parse(name) else {
            return false;
        };
        let to = To::Lease(&name);
        !self.is_barred() && self.rights.allow(self.principal.as_ref(), verb, to)
    }

    /// Whether it may see that lease: who may acquire it may.
    pub(super) fn may_read(&self, name: &str) -> bool {
        self.may(Verb::Observe, name) || self.may(Verb::Acquire, name)
    }

    /// The same for all names that begin so.
    pub(super) fn may_read_all(&self, prefix: &str) -> bool {
        !self.is_barred() && self.ruled && prefix.starts_with(OWN)
    }

    /// Whether it may do this to the cluster.
    pub(super) fn may_to_cluster(&self, verb: Verb) -> bool {
        !self.is_barred()
            && self
                .rights
                .allow(self.principal.as_ref(), verb, To::Cluster)
    }

    /// Whether it may acquire anything.
    pub(super) fn may_open(&self) -> bool {
        !self.is_barred()
            && self
                .rights
                .allow(self.principal.as_ref(), Verb::Acquire, To::SomeLease)
    }
}
