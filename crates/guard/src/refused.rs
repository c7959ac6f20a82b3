//! What a guard answers.

use ringfence_core::{FencingToken, LeaseName};

use crate::InvalidFence;

/// The proof that a guard admitted a token.
///
/// It says that at the moment of the check no greater token had been admitted. How long that
/// stays true depends on the backend: to the end of the transaction in SQLite, to the end of the
/// effect in [`Guard::with`](crate::Guard::with), no longer than the call in
/// [`Guard::admit`](crate::Guard::admit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    token: FencingToken,
}

impl Admitted {
    pub(crate) const fn new(token: FencingToken) -> Self {
        Self { token }
    }

    /// The token that was admitted; it is now the mark.
    #[must_use]
    pub const fn token(self) -> FencingToken {
        self.token
    }
}

/// Why a guard did not admit a fence. No refusal is worth repeating: the same fence is refused
/// again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A greater token was admitted: a later grant works here. Final for that grant.
    #[error(
        "STALE_TOKEN: token {offered} of lease `{name}` was overtaken by token {mark}; this is \
         final for that grant: stop the work, its lease is lost"
    )]
    StaleToken {
        /// The lease.
        name: LeaseName,
        /// The token that was shown.
        offered: FencingToken,
        /// The mark: the greatest token admitted here.
        mark: FencingToken,
    },
    /// The fence is of another lease than the one that guards this.
    #[error(
        "WRONG_LEASE: the fence is of lease `{offered}`, but this is guarded by lease `{expected}`; \
         stop the work and acquire `{expected}`"
    )]
    WrongLease {
        /// The lease that guards.
        expected: LeaseName,
        /// The lease of the fence.
        offered: LeaseName,
    },
    /// No fence came with the write.
    #[error(
        "MISSING_FENCE: this is guarded by lease `{expected}`; show the fence of its grant, \
         `{expected}#TOKEN`"
    )]
    MissingFence {
        /// The lease that guards.
        expected: LeaseName,
    },
    /// What came with the write is no fence.
    #[error(
        "MALFORMED_FENCE: what was shown is no fence; this is guarded by lease `{expected}`: show \
         `{expected}#TOKEN`"
    )]
    Malformed {
        /// The lease that guards.
        expected: LeaseName,
        /// What is wrong with it.
        #[source]
        cause: InvalidFence,
    },
}

impl Refused {
    /// The reason as one word for machines, as the cluster's own errors have it.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::StaleToken { .. } => "STALE_TOKEN",
            Self::WrongLease { .. } => "WRONG_LEASE",
            Self::MissingFence { .. } => "MISSING_FENCE",
            Self::Malformed { .. } => "MALFORMED_FENCE",
        }
    }

    /// Whether the grant itself is over: true for [`Refused::StaleToken`] only. The others are
    /// mistakes of the caller that say nothing about its lease.
    #[must_use]
    pub const fn ends_the_grant(&self) -> bool {
        matches!(self, Self::StaleToken { .. })
    }
}
