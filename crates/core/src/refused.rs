//! What a guard answers to a fence that it does not admit, and what that means for the holder.

use alloc::boxed::Box;
use core::fmt;

use crate::{Fence, FencingToken, InvalidFence, LeaseName};

/// Why a guard did not admit a fence. No refusal is worth repeating: the same fence is refused
/// again, [`Refused::TokenTooHigh`] until a clock or a setting of the guard is corrected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// A greater token was admitted: a later grant works here. Final for that grant.
    StaleToken {
        /// The lease.
        name: LeaseName,
        /// The token that was shown.
        offered: FencingToken,
        /// The mark: the greatest token admitted here.
        mark: FencingToken,
    },
    /// The token is above the guard's ceiling, the greatest token that a cluster can have granted
    /// by now: it was made up, or the guard's clock or ceiling is wrong. The mark is unchanged, and
    /// the grant, if there is one, may be in force.
    TokenTooHigh {
        /// The lease.
        name: LeaseName,
        /// The token that was shown.
        offered: FencingToken,
        /// The greatest token that this guard would have admitted then.
        ceiling: FencingToken,
    },
    /// The fence is of another lease than the one that guards this.
    WrongLease {
        /// The lease that guards.
        expected: LeaseName,
        /// The lease of the fence.
        offered: LeaseName,
    },
    /// No fence came with the write.
    MissingFence {
        /// The lease that guards.
        expected: LeaseName,
    },
    /// What came with the write is no fence.
    Malformed {
        /// The lease that guards.
        expected: LeaseName,
        /// What is wrong with it.
        cause: InvalidFence,
    },
}

impl Refused {
    /// The `SQLSTATE` with which the SQL functions of the guard refuse a stale token.
    pub const SQLSTATE_STALE_TOKEN: &'static str = "RF001";

    /// The `SQLSTATE` with which they refuse a token above the ceiling.
    pub const SQLSTATE_TOKEN_TOO_HIGH: &'static str = "RF006";

    /// What the message and the Redis error of a stale token begin with.
    const STALE_TOKEN: &'static str = "STALE_TOKEN";

    /// What those of a token above the ceiling begin with.
    const TOKEN_TOO_HIGH: &'static str = "TOKEN_TOO_HIGH";

    /// What stands before the mark in the detail of such an error.
    const MARK: &'static str = "mark=";

    /// What stands before the ceiling.
    const CEILING: &'static str = "ceiling=";

    /// The seconds by which a guard lets a token run ahead of its own clock: a day. A guard whose
    /// clock shows `now`, in seconds since 1970, has the ceiling
    /// `(now + AHEAD_SECONDS) << FencingToken::CLOCK_SHIFT`, unless it is set otherwise.
    pub const AHEAD_SECONDS: u64 = 24 * 60 * 60;

    /// Reads a refusal from an error of a database whose driver the guard has no module for:
    /// `sqlx`, `diesel`, `sea-orm`. `fence` is what the statement showed, `code` the error's
    /// `SQLSTATE`, `detail` its detail or, where the driver hides that, its message. `None` if it
    /// is any other error.
    ///
    /// ```
    /// use ringfence_core::{Fence, FencingToken, Refused};
    ///
    /// // With sqlx: `error.as_database_error()?.code()?`, and `PgDatabaseError::detail`.
    /// let fence: Fence = "bank/balance#8".parse().unwrap();
    /// let refused = Refused::from_sqlstate(&fence, "RF001", Some("mark=9"));
    /// assert_eq!(refused, Some(fence.overtaken_by(FencingToken::new(9).unwrap())));
    /// assert_eq!(Refused::from_sqlstate(&fence, "40001", None), None);
    /// ```
    #[must_use]
    pub fn from_sqlstate(fence: &Fence, code: &str, detail: Option<&str>) -> Option<Self> {
        match code {
            Self::SQLSTATE_STALE_TOKEN => Some(Self::stale(fence, detail.unwrap_or_default())),
            Self::SQLSTATE_TOKEN_TOO_HIGH => Some(Self::high(fence, detail.unwrap_or_default())),
            _ => None,
        }
    }

    /// As [`Refused::from_sqlstate`], for drivers that show no `SQLSTATE`, as `diesel`, and for
    /// Redis clients in other hands: `message` is the error's message, which begins with
    /// `STALE_TOKEN` or `TOKEN_TOO_HIGH`.
    ///
    /// ```
    /// use ringfence_core::{Fence, FencingToken, Refused};
    ///
    /// let fence: Fence = "bank/balance#8".parse().unwrap();
    /// let stale = Some(fence.overtaken_by(FencingToken::new(9).unwrap()));
    /// let message = "STALE_TOKEN: token 8 of lease \"bank/balance\" was overtaken by token 9";
    /// assert_eq!(Refused::from_message(&fence, message), stale);
    /// let message = "STALE_TOKEN mark=0000000000000000009";
    /// assert_eq!(Refused::from_message(&fence, message), stale);
    /// assert_eq!(Refused::from_message(&fence, "duplicate key"), None);
    /// ```
    #[must_use]
    pub fn from_message(fence: &Fence, message: &str) -> Option<Self> {
        if message.starts_with(Self::STALE_TOKEN) {
            Some(Self::stale(fence, message))
        } else if message.starts_with(Self::TOKEN_TOO_HIGH) {
            Some(Self::high(fence, message))
        } else {
            None
        }
    }

    /// `text` names the mark.
    fn stale(fence: &Fence, text: &str) -> Self {
        fence.overtaken_by(token_in(text, Self::MARK).unwrap_or(fence.token))
    }

    /// `text` names the ceiling.
    fn high(fence: &Fence, text: &str) -> Self {
        fence.above(token_in(text, Self::CEILING).unwrap_or(fence.token))
    }

    /// The reason as one word for machines, as the cluster's own errors have it.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::StaleToken { .. } => Self::STALE_TOKEN,
            Self::TokenTooHigh { .. } => Self::TOKEN_TOO_HIGH,
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

/// The token in the text of an error: what follows `label`, or the last word.
fn token_in(text: &str, label: &str) -> Option<FencingToken> {
    let from = text.find(label).map(|at| at + label.len());
    let word = match from {
        Some(from) => text[from..].split_whitespace().next(),
        None => text.split_whitespace().next_back(),
    };
    word?.parse().ok().and_then(FencingToken::new)
}

/// The first time, in seconds since 1970, at which a guard's clock lets this token pass.
const fn clock_for(token: FencingToken) -> u64 {
    let granted = token.get().div_ceil(1 << FencingToken::CLOCK_SHIFT);
    granted.saturating_sub(Refused::AHEAD_SECONDS)
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.reason())?;
        match self {
            Self::StaleToken {
                name,
                offered,
                mark,
            } => write!(
                f,
                "token {offered} of lease `{name}` was overtaken by token {mark}; this is final \
                 for that grant: stop the work, its lease is lost"
            ),
            Self::TokenTooHigh {
                name,
                offered,
                ceiling,
            } => write!(
                f,
                "token {offered} of lease `{name}` is above {ceiling}, the greatest that this \
                 guard takes for granted by now; nothing was written. If the cluster has granted \
                 it (see `ringfence lease get {name}`), set the clock of the guard to at least \
                 {} s since 1970, or raise its ceiling; if not, the token was made up",
                clock_for(*offered)
            ),
            Self::WrongLease { expected, offered } => write!(
                f,
                "the fence is of lease `{offered}`, but this is guarded by lease `{expected}`; \
                 stop the work and acquire `{expected}`"
            ),
            Self::MissingFence { expected } => write!(
                f,
                "this is guarded by lease `{expected}`; show the fence of its grant, \
                 `{expected}#TOKEN`"
            ),
            Self::Malformed { expected, .. } => write!(
                f,
                "what was shown is no fence; this is guarded by lease `{expected}`: show \
                 `{expected}#TOKEN`"
            ),
        }
    }
}

impl core::error::Error for Refused {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Malformed { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// An error of guarded work that may carry a guard's refusal.
///
/// All errors of the guards implement it, so that a holder's client can stop believing in a lease
/// as soon as a store rejects its fence as stale. Implement it for an error type of your own by
/// delegating:
///
/// ```
/// use ringfence_core::{EndsBelief, Fence, FencingToken, Refused};
///
/// enum LedgerError {
///     Guard(Refused), // or PostgresError, SqliteError, …
///     Overdrawn,
/// }
///
/// impl EndsBelief for LedgerError {
///     fn refused(&self) -> Option<&Refused> {
///         match self {
///             Self::Guard(error) => error.refused(),
///             Self::Overdrawn => None,
///         }
///     }
/// }
///
/// let fence: Fence = "bank/balance#8".parse().unwrap();
/// let stale = fence.overtaken_by(FencingToken::new(9).unwrap());
/// assert!(LedgerError::Guard(stale).ends_belief_in(&fence));
/// assert!(!LedgerError::Overdrawn.ends_belief_in(&fence));
/// ```
pub trait EndsBelief {
    /// The guard's refusal, if this error is one or carries one.
    fn refused(&self) -> Option<&Refused>;

    /// Whether this error proves that the grant with this fence is over: a guard saw a greater
    /// token of the same lease. False for a refusal of any other fence, and for refusals that are
    /// mistakes of the caller.
    fn ends_belief_in(&self, fence: &Fence) -> bool {
        matches!(
            self.refused(),
            Some(Refused::StaleToken { name, offered, .. })
                if *name == fence.name && *offered == fence.token
        )
    }
}

impl EndsBelief for Refused {
    fn refused(&self) -> Option<&Refused> {
        Some(self)
    }
}

impl<E: EndsBelief + ?Sized> EndsBelief for &E {
    fn refused(&self) -> Option<&Refused> {
        (**self).refused()
    }
}

impl<E: EndsBelief + ?Sized> EndsBelief for Box<E> {
    fn refused(&self) -> Option<&Refused> {
        (**self).refused()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use alloc::string::ToString as _;

    use super::*;

    fn fence(text: &str) -> Fence {
        text.parse().unwrap()
    }

    #[test]
    fn only_a_stale_refusal_of_the_same_grant_ends_belief() {
        let mine = fence("db#8");
        let mark = FencingToken::new(12).unwrap();
        assert!(mine.overtaken_by(mark).ends_belief_in(&mine));
        assert!(Box::new(mine.overtaken_by(mark)).ends_belief_in(&mine));
        for other in ["db#9", "db/x#8"] {
            assert!(!fence(other).overtaken_by(mark).ends_belief_in(&mine));
        }
        let missing = Refused::MissingFence {
            expected: mine.name.clone(),
        };
        assert!(!missing.ends_belief_in(&mine));
    }

    #[test]
    fn an_unreadable_mark_still_ends_the_grant() {
        let mine = fence("db#8");
        for detail in [
            None,
            Some(""),
            Some("mark="),
            Some("mark=x"),
            Some("mark=0"),
        ] {
            let refused = Refused::from_sqlstate(&mine, "RF001", detail).unwrap();
            assert!(refused.ends_belief_in(&mine), "{detail:?}");
        }
        assert!(Refused::from_message(&mine, "STALE_TOKEN").is_some());
    }

    #[test]
    fn a_token_above_the_ceiling_ends_no_belief_and_says_what_to_do() {
        let made_up = fence("db#4611686018427387904");
        let ceiling = FencingToken::new(1_000_086_400 << 20).unwrap();
        let refused = made_up.above(ceiling);
        assert!(!refused.ends_the_grant());
        assert!(!refused.ends_belief_in(&made_up));
        assert_eq!(
            refused.to_string(),
            "TOKEN_TOO_HIGH: token 4611686018427387904 of lease `db` is above 1048666596966400, the \
             greatest that this guard takes for granted by now; nothing was written. If the \
             cluster has granted it (see `ringfence lease get db`), set the clock of the guard to at \
             least 4398046424704 s since 1970, or raise its ceiling; if not, the token was made up"
        );
        let detail = "ceiling=1048666596966400";
        assert_eq!(
            Refused::from_sqlstate(&made_up, "RF006", Some(detail)),
            Some(refused.clone())
        );
        assert_eq!(
            Refused::from_message(&made_up, "TOKEN_TOO_HIGH ceiling=0001048666596966400"),
            Some(refused)
        );
        for unreadable in [None, Some(""), Some("ceiling=x")] {
            let refused = Refused::from_sqlstate(&made_up, "RF006", unreadable).unwrap();
            assert_eq!(refused.reason(), "TOKEN_TOO_HIGH");
        }
    }
}
