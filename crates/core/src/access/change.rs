//! Changes of rights: what they say, and what of it makes no sense.

use alloc::vec::Vec;
use core::fmt;

use super::principal::Principal;
use super::rules::{InvalidRule, RULES_MAX, Rule};
use crate::id::ClusterId;

/// The most banned principals of a cluster.
pub const BANS_MAX: usize = 1_024;
/// The most cluster tokens that are valid at a time.
pub const CLUSTER_TOKENS_MAX: usize = 1_024;
/// The most changes of rules, bans, tokens and mode in one entry. Of the longest ones so many fit in
/// an entry of the log.
pub const ACCESS_CHANGES_MAX: usize = 48;

/// How much rights bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Nothing is proven and nothing refused: who reaches the client port may do anything.
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

/// How much one principal may have at a time, in the mode [`Mode::Enforced`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrincipalLimits {
    /// Sessions, those that ended within the last minute included; 1 or more.
    pub sessions: u64,
    /// Leases and waits of all its sessions together; 1 or more.
    pub leases: u64,
}

impl PrincipalLimits {
    /// What holds until it is changed.
    pub const STANDARD: Self = Self {
        sessions: 100_000,
        leases: 1_000_000,
    };
}

impl Default for PrincipalLimits {
    fn default() -> Self {
        Self::STANDARD
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

impl Caller {
    /// Whether it is anybody: `anonymous` is the same as no caller at all.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.principal.as_str() != Principal::ANONYMOUS
    }
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
    /// Sets how much one principal may have.
    SetLimits(PrincipalLimits),
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
    /// A limit of 0.
    LimitOfZero,
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
            Self::LimitOfZero => f.write_str("a limit is 1 or more; a ban refuses everything"),
        }
    }
}

impl core::error::Error for InvalidAccess {}
