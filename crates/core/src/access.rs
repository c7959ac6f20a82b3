//! Identities and rights: who may do what, as the replicated state knows it.
//!
//! ```text
//!   principal ── who a request was proven to come from
//!   verb ─────── what a rule allows
//!   pattern ──── for which principals and names
//!   rules ────── all rules, and the one that allows something
//!   usage ────── what each principal has
//!   change ───── of rights, and what of it makes no sense
//!   this file ── the mode, rules, bans and cluster tokens together
//! ```
//!
//! A node proves who calls, by its own configuration and clock. What follows from that is judged
//! here, from the state and the entry alone, so every replica judges the same.

pub(crate) mod change;
pub(crate) mod pattern;
pub(crate) mod principal;
pub(crate) mod rules;
pub(crate) mod usage;
pub(crate) mod verb;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use ringfence_planted::{Bug, planted};

use crate::name::LeaseName;
use crate::outcome::Rejection;
use change::{
    ACCESS_CHANGES_MAX, AccessChange, BANS_MAX, CLUSTER_TOKENS_MAX, Caller, ClusterToken,
    InvalidAccess, Mode, PrincipalLimits,
};
use pattern::{NamePattern, PrincipalPattern};
use principal::Principal;
use rules::{RULES_MAX, Rule, Rules, Scope};
use verb::Verb;

/// One record of a snapshot about rights: the mode first, then rules, bans and cluster tokens, each
/// in its order. There is none if nothing was ever changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessRecord {
    /// The mode.
    Mode {
        /// The mode in force.
        mode: Mode,
        /// How much one principal may have.
        limits: PrincipalLimits,
        /// The entry that made the last change.
        set_at: u64,
    },
    /// A rule.
    Rule(Rule),
    /// A banned principal.
    Ban(Principal),
    /// A cluster token.
    Token {
        /// Its id: the index of the entry that made it.
        id: u64,
        /// What it proves.
        token: ClusterToken,
    },
}

/// Who may do what. A clone shares all of it.
#[derive(Clone, Debug, Default)]
pub struct Access {
    mode: Mode,
    limits: PrincipalLimits,
    set_at: u64,
    rest: Arc<Rest>,
}

#[derive(Clone, Debug, Default)]
struct Rest {
    rules: Rules,
    bans: BTreeSet<Principal>,
    tokens: BTreeMap<u64, ClusterToken>,
}

impl Access {
    /// How much rights bind.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How much one principal may have.
    #[must_use]
    pub fn limits(&self) -> PrincipalLimits {
        self.limits
    }

    /// The entry that made the last change, 0 before the first.
    #[must_use]
    pub fn set_at(&self) -> u64 {
        self.set_at
    }

    /// The rules, in the order of their principals.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rest.rules.all().iter()
    }

    /// The banned principals, in their order.
    pub fn bans(&self) -> impl Iterator<Item = &Principal> {
        self.rest.bans.iter()
    }

    /// The cluster tokens with their ids, in the order in which they were made.
    pub fn tokens(&self) -> impl Iterator<Item = (u64, &ClusterToken)> {
        self.rest.tokens.iter().map(|(id, token)| (*id, token))
    }

    /// The cluster token with this id, unless it was removed.
    #[must_use]
    pub fn token(&self, id: u64) -> Option<&ClusterToken> {
        self.rest.tokens.get(&id)
    }

    /// Whether requests of this caller are looked at: its token is valid and it is not banned. It
    /// says what would be so in the mode `enforced`; `None` stands for a caller without proof.
    ///
    /// # Errors
    /// [`Rejection::TokenRevoked`] or [`Rejection::Banned`].
    pub fn admit(&self, caller: Option<&Caller>) -> Result<(), Rejection> {
        let Some(caller) = caller else {
            return self.admit_principal(Principal::ANONYMOUS);
        };
        if let Some(id) = caller.token
            && self.token(id).map(|token| &token.principal) != Some(&caller.principal)
        {
            return Err(Rejection::TokenRevoked { id });
        }
        self.admit_principal(caller.principal.as_str())
    }

    /// Whether a principal that cluster tokens alone prove has one left; true of any other principal.
    /// Which of them opened a session is not kept, so one that replaces another serves the waits of
    /// both. One that has expired counts: only the nodes judge that, by their wall clocks.
    pub(crate) fn has_token(&self, owner: &Principal) -> bool {
        let mut tokens = self.rest.tokens.values();
        !owner.is_of_token() || tokens.any(|token| token.principal == *owner)
    }

    /// Whether rights bind and this owner of a session is banned.
    pub(crate) fn bans_owner(&self, owner: Option<&Principal>) -> bool {
        let banned = |owner: &Principal| self.rest.bans.contains(owner);
        self.mode == Mode::Enforced && owner.is_some_and(banned)
    }

    pub(crate) fn admit_principal(&self, principal: &str) -> Result<(), Rejection> {
        match self.rest.bans.get(principal) {
            Some(banned) => Err(Rejection::Banned {
                principal: banned.clone(),
            }),
            None => Ok(()),
        }
    }

    /// The rule that allows it, if one does. `local` needs none for [`Verb::Admin`].
    #[must_use]
    pub fn rule(&self, principal: &str, verb: Verb, scope: Scope<'_>) -> Option<&Rule> {
        self.rest.rules.allowing(principal, verb, scope)
    }

    /// Whether a principal may do something, whatever the mode.
    ///
    /// # Errors
    /// [`Rejection::PermissionDenied`] names the rule that would allow it.
    pub fn judge(
        &self,
        principal: Option<&Principal>,
        verb: Verb,
        scope: Scope<'_>,
    ) -> Result<(), Rejection> {
        let text = principal.map_or(Principal::ANONYMOUS, Principal::as_str);
        if (text == Principal::LOCAL && verb == Verb::Admin)
            || self.rule(text, verb, scope).is_some()
        {
            return Ok(());
        }
        Err(self.denied(principal, verb, scope))
    }

    /// Whether a principal may open a session, whatever the mode: it may if it may acquire any lease.
    /// `first` is the lease that it acquires in the same step.
    ///
    /// # Errors
    /// [`Rejection::PermissionDenied`] names the narrowest rule that would allow it: for `first`, if
    /// there is one.
    pub fn judge_open(
        &self,
        principal: Option<&Principal>,
        first: Option<&LeaseName>,
    ) -> Result<(), Rejection> {
        let denied = self.judge(principal, Verb::Acquire, Scope::Any);
        denied.map_err(|denied| match first {
            Some(name) => self.denied(principal, Verb::Acquire, Scope::Name(name)),
            None => denied,
        })
    }

    /// The refusal of a principal that lacks a right.
    pub(crate) fn denied(
        &self,
        principal: Option<&Principal>,
        verb: Verb,
        scope: Scope<'_>,
    ) -> Rejection {
        let names = match scope {
            Scope::Cluster => None,
            Scope::Name(name) => Some(NamePattern::Exact(name.clone())),
            Scope::Prefix(prefix) => Some(NamePattern::covering(prefix)),
            Scope::Any => Some(NamePattern::all()),
        };
        let principal = principal.cloned().unwrap_or_else(Principal::anonymous);
        Rejection::PermissionDenied {
            needed: Box::new(Rule {
                principals: PrincipalPattern::Exact(principal),
                verb,
                names,
            }),
        }
    }

    /// Whether a principal may read the state of leases, whatever the mode: who may have them may,
    /// too. A prefix is allowed only if a rule covers all of it.
    ///
    /// # Errors
    /// [`Rejection::PermissionDenied`] names the rule that would allow it, with [`Verb::Observe`].
    pub fn judge_read(
        &self,
        principal: Option<&Principal>,
        scope: Scope<'_>,
    ) -> Result<(), Rejection> {
        let may = |verb| self.judge(principal, verb, scope);
        may(Verb::Observe).or_else(|denied| may(Verb::Acquire).map_err(|_| denied))
    }

    /// The same in the mode `enforced`; in the others everything is allowed.
    ///
    /// # Errors
    /// As [`Access::judge`].
    pub fn demand(
        &self,
        principal: Option<&Principal>,
        verb: Verb,
        scope: Scope<'_>,
    ) -> Result<(), Rejection> {
        match self.mode {
            Mode::Off | Mode::Permissive => Ok(()),
            Mode::Enforced => self.judge(principal, verb, scope),
        }
    }

    /// The rights of a cluster that the entry at `index` forms with this mode: there are no rules yet.
    pub(crate) fn formed(mode: Mode, index: u64) -> Self {
        Self {
            mode,
            set_at: index,
            ..Self::default()
        }
    }

    /// Whether a restored cluster can have these rights.
    ///
    /// # Errors
    /// What is wrong with the first one that it cannot have.
    pub fn check(records: &[AccessRecord]) -> Result<(), InvalidAccess> {
        Self::default().seeded(records, 1).map(drop)
    }

    /// With these rights of a backup besides, which the entry at `index` restores. Its cluster tokens
    /// are not among them: one that was removed since the backup would be valid again.
    pub(crate) fn seeded(
        &self,
        records: &[AccessRecord],
        index: u64,
    ) -> Result<Self, InvalidAccess> {
        if records.is_empty() {
            return Ok(self.clone());
        }
        let (mut mode, mut limits) = (self.mode, self.limits);
        let mut rules = self.rest.rules.all().clone();
        let mut bans = self.rest.bans.clone();
        let mut tokens = self.rest.tokens.clone();
        for record in records {
            match record {
                AccessRecord::Mode {
                    mode: to,
                    limits: of,
                    ..
                } => (mode, limits) = (*to, *of),
                AccessRecord::Rule(rule) => {
                    rule.check().map_err(InvalidAccess::Rule)?;
                    rules.insert(rule.clone());
                }
                AccessRecord::Ban(principal) if principal.as_str() == Principal::LOCAL => {
                    return Err(InvalidAccess::BanLocal);
                }
                AccessRecord::Ban(principal) => drop(bans.insert(principal.clone())),
                AccessRecord::Token { id, token } if planted(Bug::RestoreKeepsClusterTokens) => {
                    tokens.insert((*id).min(index), token.clone());
                }
                AccessRecord::Token { .. } => {}
            }
        }
        if limits.sessions == 0 || limits.leases == 0 {
            return Err(InvalidAccess::LimitOfZero);
        }
        if rules.len() > RULES_MAX {
            return Err(InvalidAccess::TooManyRules);
        }
        if bans.len() > BANS_MAX {
            return Err(InvalidAccess::TooManyBans);
        }
        let rest = Rest {
            rules: Rules::new(rules),
            bans,
            tokens,
        };
        Ok(Self {
            mode,
            limits,
            set_at: index,
            rest: Arc::new(rest),
        })
    }

    /// The state after these changes, made by the entry at `index`, and the id of the new token.
    pub(crate) fn changed(
        &self,
        changes: &[AccessChange],
        index: u64,
    ) -> Result<(Self, Option<u64>), InvalidAccess> {
        let tokens = |change: &&AccessChange| matches!(change, AccessChange::AddToken(_));
        let new_tokens = changes.iter().filter(tokens).count();
        if changes.is_empty() || changes.len() > ACCESS_CHANGES_MAX || new_tokens > 1 {
            return Err(InvalidAccess::Changes);
        }
        let (mut mode, mut limits) = (self.mode, self.limits);
        let mut rules = self.rest.rules.all().clone();
        let mut bans = self.rest.bans.clone();
        let mut tokens = self.rest.tokens.clone();
        for change in changes {
            match change {
                AccessChange::AddRule(rule) => {
                    rule.check().map_err(InvalidAccess::Rule)?;
                    rules.insert(rule.clone());
                }
                AccessChange::RemoveRule(rule) => drop(rules.remove(rule)),
                AccessChange::Ban(principal) if principal.as_str() == Principal::LOCAL => {
                    return Err(InvalidAccess::BanLocal);
                }
                AccessChange::Ban(principal) => drop(bans.insert(principal.clone())),
                AccessChange::Unban(principal) => drop(bans.remove(principal)),
                AccessChange::AddToken(token) => {
                    if !token.principal.is_of_token() {
                        return Err(InvalidAccess::TokenPrincipal);
                    }
                    // An index is never used twice, so a token that was removed stays so.
                    tokens.insert(index, token.clone());
                }
                AccessChange::RemoveTokens(of) => tokens.retain(|_, token| token.principal != *of),
                AccessChange::SetMode(to) => mode = *to,
                AccessChange::SetLimits(to) if to.sessions == 0 || to.leases == 0 => {
                    return Err(InvalidAccess::LimitOfZero);
                }
                AccessChange::SetLimits(to) => limits = *to,
            }
        }
        if rules.len() > RULES_MAX {
            return Err(InvalidAccess::TooManyRules);
        }
        if bans.len() > BANS_MAX {
            return Err(InvalidAccess::TooManyBans);
        }
        if tokens.len() > CLUSTER_TOKENS_MAX {
            return Err(InvalidAccess::TooManyTokens);
        }
        let rest = Rest {
            rules: Rules::new(rules),
            bans,
            tokens,
        };
        let rest = Arc::new(rest);
        let changed = Self {
            mode,
            limits,
            set_at: index,
            rest,
        };
        Ok((changed, (new_tokens > 0).then_some(index)))
    }

    /// Whether both allow the same, whatever entries made them.
    pub(crate) fn allows_the_same_as(&self, other: &Self) -> bool {
        let same = |one: &Rest, other: &Rest| {
            one.rules.all() == other.rules.all()
                && one.bans == other.bans
                && one.tokens == other.tokens
        };
        (self.mode, self.limits) == (other.mode, other.limits) && same(&self.rest, &other.rest)
    }

    /// Whether the change would lock out who makes it: who could change rights could do so no more,
    /// or rights would bind with an author who has none to change them.
    pub(crate) fn locks_out(&self, author: Option<&Caller>, after: &Self) -> bool {
        let may = |access: &Self| {
            let principal = author.map(|author| &author.principal);
            access.admit(author).is_ok()
                && access.judge(principal, Verb::Admin, Scope::Cluster).is_ok()
        };
        let binds = after.mode == Mode::Enforced || (after.mode != Mode::Off && may(self));
        binds && !may(after) && !planted(Bug::LockOutAllowed)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = AccessRecord> {
        let first = AccessRecord::Mode {
            mode: self.mode,
            limits: self.limits,
            set_at: self.set_at,
        };
        let first = (self.set_at > 0).then_some(first);
        let rules = self.rules().cloned().map(AccessRecord::Rule);
        let bans = self.bans().cloned().map(AccessRecord::Ban);
        let tokens = self.tokens().map(|(id, token)| {
            let token = token.clone();
            AccessRecord::Token { id, token }
        });
        first.into_iter().chain(rules).chain(bans).chain(tokens)
    }

    /// What these records describe.
    pub(crate) fn restore(records: Vec<AccessRecord>) -> Result<Self, &'static str> {
        let mut records = records.into_iter();
        let (mode, limits, set_at) = match records.next() {
            None => return Ok(Self::default()),
            Some(AccessRecord::Mode {
                mode,
                limits,
                set_at,
            }) if set_at > 0 => (mode, limits, set_at),
            Some(_) => return Err("has rights without a mode before them"),
        };
        let (mut rules, mut rest) = (BTreeSet::new(), Rest::default());
        for record in records {
            let new = match record {
                AccessRecord::Mode { .. } => false,
                AccessRecord::Rule(rule) => rule.check().is_ok() && rules.insert(rule),
                AccessRecord::Ban(principal) => rest.bans.insert(principal),
                AccessRecord::Token { id, token } => {
                    id <= set_at && rest.tokens.insert(id, token).is_none()
                }
            };
            if !new {
                return Err("has a right twice, or one that makes no sense");
            }
        }
        rest.rules = Rules::new(rules);
        let rest = Arc::new(rest);
        Ok(Self {
            mode,
            limits,
            set_at,
            rest,
        })
    }
}
