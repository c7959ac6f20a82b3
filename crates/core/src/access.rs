//! Identities and rights: who may do what, as the replicated state knows it.
//!
//! ```text
//!   principal ── who a request was proven to come from
//!   verb ─────── what a rule allows
//!   pattern ──── for which principals and names
//!   rules ────── all rules, and the one that allows something
//!   this file ── the mode, rules, bans and cluster tokens together
//! ```
//!
//! A node proves who calls, by its own configuration and clock. What follows from that is judged
//! here, from the state and the entry alone, so every replica judges the same.

pub(crate) mod pattern;
pub(crate) mod principal;
pub(crate) mod rules;
pub(crate) mod verb;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use ringfence_planted::{Bug, planted};

use crate::id::ClusterId;
use crate::outcome::Rejection;
use pattern::{NamePattern, PrincipalPattern};
use principal::Principal;
use rules::{InvalidRule, RULES_MAX, Rule, Rules, Scope};
use verb::Verb;

/// The most banned principals of a cluster.
pub const BANS_MAX: usize = 1_024;
/// The most cluster tokens that are valid at a time.
pub const CLUSTER_TOKENS_MAX: usize = 1_024;
/// The most changes of rules, bans, tokens and mode in one entry.
pub const ACCESS_CHANGES_MAX: usize = 1_024;

/// How much rights bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Nothing is proven and nothing refused: whoever reaches the client port may do anything.
    #[default]
    Off,
    /// Callers are proven and judged, refusals are counted, and nothing is refused.
    Permissive,
    /// What no rule allows is refused.
    Enforced,
}

impl Mode {
    /// The mode as commands write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Permissive => "permissive",
            Self::Enforced => "enforced",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who asks, as the node says that has proven it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Who.
    pub principal: Principal,
    /// The id of the cluster token that proved it.
    pub token: Option<u64>,
    /// The node that proved it; 0 if it did not know its own number yet.
    pub node: u64,
}

/// A cluster token. The secret itself is known to its bearer alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterToken {
    /// What it proves: `token:NAME`.
    pub principal: Principal,
    /// SHA-256 of the secret.
    pub digest: [u8; 32],
    /// When it expires, in seconds since the Unix epoch, by the clock of the node that it is shown
    /// to; never if left out.
    pub expires: Option<u64>,
}

/// A change of what principals may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangeAccess {
    /// The cluster that is meant.
    pub cluster: ClusterId,
    /// The index of the entry that made the last change, 0 before the first; another one means
    /// that another change came first. This makes repeating it harmless.
    pub based_on: u64,
    /// What changes, in this order and all at once; at most [`ACCESS_CHANGES_MAX`].
    pub changes: Vec<AccessChange>,
}

/// One part of a [`ChangeAccess`]. To add what is there, or remove what is not, changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessChange {
    /// Allows something.
    AddRule(Rule),
    /// Allows it no more.
    RemoveRule(Rule),
    /// Refuses a principal everything, keep-alives too.
    Ban(Principal),
    /// Takes a ban back.
    Unban(Principal),
    /// Makes a cluster token. The answer says its id. At most one of these in an entry.
    AddToken(ClusterToken),
    /// Ends all cluster tokens of this principal.
    RemoveTokens(Principal),
    /// Sets the mode.
    SetMode(Mode),
}

/// Why a [`ChangeAccess`] makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InvalidAccess {
    /// Its parts do not fit together.
    Rule(InvalidRule),
    /// It has no change, more than [`ACCESS_CHANGES_MAX`], or more than one new token.
    Changes,
    /// There would be more than [`RULES_MAX`] rules.
    TooManyRules,
    /// There would be more than [`BANS_MAX`] bans.
    TooManyBans,
    /// There would be more than [`CLUSTER_TOKENS_MAX`] cluster tokens.
    TooManyTokens,
    /// A cluster token proves `token:NAME` and nothing else.
    TokenPrincipal,
    /// `local` cannot be banned: it is the way back in.
    BanLocal,
    /// Not every member runs a release that knows rights.
    LevelTooLow,
    /// It is meant for another cluster.
    OtherCluster,
}

impl fmt::Display for InvalidAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(invalid) => fmt::Display::fmt(invalid, f),
            Self::Changes => write!(
                f,
                "a change has 1 to {ACCESS_CHANGES_MAX} parts, of which one at most makes a token"
            ),
            Self::TooManyRules => write!(f, "there are {RULES_MAX} rules at most"),
            Self::TooManyBans => write!(f, "there are {BANS_MAX} bans at most"),
            Self::TooManyTokens => {
                write!(f, "there are {CLUSTER_TOKENS_MAX} cluster tokens at most")
            }
            Self::TokenPrincipal => f.write_str("a cluster token proves token:NAME"),
            Self::BanLocal => f.write_str("local cannot be banned: it is the way back in"),
            Self::LevelTooLow => {
                f.write_str("not every member runs a release that knows rights: upgrade all first")
            }
            Self::OtherCluster => f.write_str("the change is meant for another cluster"),
        }
    }
}

impl core::error::Error for InvalidAccess {}

/// One record of a snapshot about rights: the mode first, then rules, bans and cluster tokens, each
/// in its order. There is none if nothing was ever changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessRecord {
    /// The mode.
    Mode {
        /// The mode in force.
        mode: Mode,
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

    /// Whether rights bind and this owner of a session is banned.
    pub(crate) fn bans_owner(&self, owner: Option<&Principal>) -> bool {
        let banned = |owner: &Principal| self.rest.bans.contains(owner);
        self.mode == Mode::Enforced && owner.is_some_and(banned)
    }

    fn admit_principal(&self, principal: &str) -> Result<(), Rejection> {
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
        let names = match scope {
            Scope::Cluster => None,
            Scope::Name(name) => Some(NamePattern::Exact(name.clone())),
            Scope::Prefix(prefix) => Some(NamePattern::covering(prefix)),
            Scope::Any => Some(NamePattern::all()),
        };
        let principal = principal.cloned().unwrap_or_else(Principal::anonymous);
        Err(Rejection::PermissionDenied {
            needed: Box::new(Rule {
                principals: PrincipalPattern::Exact(principal),
                verb,
                names,
            }),
        })
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
        let mut mode = self.mode;
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
                    if !token.principal.as_str().starts_with("token:") {
                        return Err(InvalidAccess::TokenPrincipal);
                    }
                    // An index is never used twice, so a token that was removed stays so.
                    tokens.insert(index, token.clone());
                }
                AccessChange::RemoveTokens(of) => tokens.retain(|_, token| token.principal != *of),
                AccessChange::SetMode(to) => mode = *to,
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
            set_at: index,
            rest,
        };
        Ok((changed, (new_tokens > 0).then_some(index)))
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
        let (mode, set_at) = (self.mode, self.set_at);
        let first = (set_at > 0).then_some(AccessRecord::Mode { mode, set_at });
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
        let (mode, set_at) = match records.next() {
            None => return Ok(Self::default()),
            Some(AccessRecord::Mode { mode, set_at }) if set_at > 0 => (mode, set_at),
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
        Ok(Self { mode, set_at, rest })
    }
}
