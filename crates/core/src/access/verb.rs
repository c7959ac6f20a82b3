//! What a rule allows.

use core::fmt;
use core::str::FromStr;

/// What a rule allows. The first three are allowed for names; the others for the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// To be granted a lease, and to read its state.
    Acquire,
    /// To read the state of leases; for all names, that of the sessions of others too.
    Observe,
    /// To end a grant, and to end a session that holds or waits for such leases only.
    Revoke,
    /// To change the settings.
    Configure,
    /// To change the members, and to hand over leadership.
    Operate,
    /// To take a backup.
    Backup,
    /// To change rules, cluster tokens, bans and the mode.
    Admin,
}

impl Verb {
    /// All verbs, in their order.
    pub const ALL: [Self; 7] = [
        Self::Acquire,
        Self::Observe,
        Self::Revoke,
        Self::Configure,
        Self::Operate,
        Self::Backup,
        Self::Admin,
    ];

    /// The verb as commands and files write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Observe => "observe",
            Self::Revoke => "revoke",
            Self::Configure => "configure",
            Self::Operate => "operate",
            Self::Backup => "backup",
            Self::Admin => "admin",
        }
    }

    /// Whether a rule with it names leases.
    #[must_use]
    pub const fn takes_names(self) -> bool {
        matches!(self, Self::Acquire | Self::Observe | Self::Revoke)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is no [`Verb`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownVerb;

impl fmt::Display for UnknownVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no such verb; expected acquire, observe, revoke, configure, operate, backup or admin",
        )
    }
}

impl core::error::Error for UnknownVerb {}

impl FromStr for Verb {
    type Err = UnknownVerb;

    fn from_str(raw: &str) -> Result<Self, UnknownVerb> {
        let mut all = Self::ALL.into_iter();
        all.find(|verb| verb.as_str() == raw).ok_or(UnknownVerb)
    }
}
