//! The fence: what a holder shows to a guard, and how a guard judges it.

use alloc::string::{String, ToString as _};
use core::fmt;
use core::str::FromStr;

use ringfence_planted::{Bug, planted};

use crate::{ClusterId, FencingToken, InvalidName, LeaseName, Refused};

/// The character between name and token. Lease names cannot contain it.
const SEPARATOR: char = '#';

/// How much of a bad text an error repeats, in bytes.
const ECHO_BYTES_MAX: usize = 64;

/// What a holder shows to a guard: the lease it holds and the token of its grant.
///
/// Its text form is `name#token`, with the token in decimal: `db/primary#42`. Every fence has one
/// text and every text at most one fence, so texts may be compared.
///
/// The name matters as much as the token. Tokens grow over the whole cluster, so a newer token of
/// *any* lease is greater than the mark of this one; without the name, one client with a wrong
/// setting would shut out a healthy holder.
///
/// # A store without an adapter
/// A store that can write conditionally is guarded by its own compare and swap. The read of the
/// mark and the write of mark and data must be one atomic step: a transaction that *writes* the
/// mark, or a write that fails if the mark has changed since it was read.
///
/// ```
/// use ringfence_core::{Fence, FencingToken, LeaseName};
///
/// let lease = LeaseName::parse("bank/balance")?;
/// let fence: Fence = "bank/balance#9".parse()?;
///
/// // 1. Read the mark and the version of the item that carries it (an ETag, a revision).
/// let mark = FencingToken::new(8);
/// // 2. Judge. A refusal is final for that grant: stop.
/// let new_mark = fence.judge(&lease, mark)?;
/// // 3. Refuse a token that no cluster can have granted yet: `Ceiling::judge` of `ringfence-guard`.
/// // 4. Write `new_mark` and the data together, on condition that the version is unchanged.
/// assert_eq!(new_mark, fence.token);
///
/// let late: Fence = "bank/balance#8".parse()?;
/// assert!(late.judge(&lease, Some(new_mark)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// The lease that is held.
    pub name: LeaseName,
    /// The token of the grant.
    pub token: FencingToken,
}

/// One thing that a stream of floors tells: what the client receives, and what a guard that follows
/// floors takes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FloorNews {
    /// The floor of a name is at least this.
    Floor {
        /// The name.
        name: LeaseName,
        /// The greatest token ever granted for it, as far as the stream has come.
        token: FencingToken,
    },
    /// The greatest floor that was ever forgotten, with a name that was idle.
    Forgotten(FencingToken),
    /// The stream has sent everything up to now: it is live. Comes at least every second.
    Reached,
    /// The stream begins again, with all floors: after a compaction, on another node, or of another
    /// cluster. It is not live before the next [`FloorNews::Reached`].
    Anew,
    /// This cluster reports what follows. Comes before the first floor, and before the first one of
    /// another cluster.
    Cluster(ClusterId),
}

/// Why a text is no [`Fence`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidFence {
    /// There is no text at all.
    Empty,
    /// There is no `#`, hence no token.
    MissingToken {
        /// The text, cut after 64 bytes.
        offered: String,
    },
    /// What stands before the `#` is no lease name.
    Name(InvalidName),
    /// What stands after the `#` is no number.
    TokenNotANumber {
        /// What stands there, cut after 64 bytes.
        offered: String,
    },
    /// The token is 0, which is never granted.
    TokenZero,
    /// The token is above [`FencingToken::MAX`].
    TokenTooLarge {
        /// The digits, cut after 64 bytes.
        offered: String,
    },
}

impl fmt::Display for InvalidFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FORM: &str = "a fence is NAME#TOKEN, for example db/primary#42";
        let max = FencingToken::MAX;
        match self {
            Self::Empty => write!(f, "the fence is empty; {FORM}"),
            Self::MissingToken { offered } => {
                write!(f, "the fence `{offered}` has no token; {FORM}")
            }
            Self::Name(_) => f.write_str("the fence does not begin with a lease name"),
            Self::TokenNotANumber { offered } => write!(
                f,
                "the token `{offered}` is not a number; a token is 1 to {max} in decimal digits, \
                 without sign, blanks or leading zeros"
            ),
            Self::TokenZero => write!(
                f,
                "the token is 0, which is never granted; a token is 1 to {max}"
            ),
            Self::TokenTooLarge { offered } => {
                write!(f, "the token {offered} is too large; a token is 1 to {max}")
            }
        }
    }
}

impl core::error::Error for InvalidFence {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Name(cause) => Some(cause),
            _ => None,
        }
    }
}

impl Fence {
    /// A fence of these two.
    #[must_use]
    pub const fn new(name: LeaseName, token: FencingToken) -> Self {
        Self { name, token }
    }

    /// Parses `name#token`.
    ///
    /// # Errors
    /// [`InvalidFence`] says what is wrong and what is allowed.
    pub fn parse(raw: &str) -> Result<Self, InvalidFence> {
        if raw.is_empty() {
            return Err(InvalidFence::Empty);
        }
        let Some((name, token)) = raw.split_once(SEPARATOR) else {
            return Err(InvalidFence::MissingToken { offered: echo(raw) });
        };
        let name = LeaseName::parse(name).map_err(InvalidFence::Name)?;
        Ok(Self {
            name,
            token: parse_token(token)?,
        })
    }

    /// Reads the fence that came with a request to a guard of `expected`: `None` if it carried
    /// none.
    ///
    /// # Errors
    /// [`Refused::MissingFence`], [`Refused::Malformed`] or [`Refused::WrongLease`].
    pub fn receive(expected: &LeaseName, offered: Option<&str>) -> Result<Self, Refused> {
        let Some(raw) = offered else {
            return Err(Refused::MissingFence {
                expected: expected.clone(),
            });
        };
        let fence = Self::parse(raw).map_err(|cause| Refused::Malformed {
            expected: expected.clone(),
            cause,
        })?;
        fence.check_lease(expected)?;
        Ok(fence)
    }

    /// Rejects the fence of any lease but `expected`.
    ///
    /// # Errors
    /// [`Refused::WrongLease`].
    pub fn check_lease(&self, expected: &LeaseName) -> Result<(), Refused> {
        if self.name == *expected || planted(Bug::AnyLeaseAdmitted) {
            return Ok(());
        }
        Err(Refused::WrongLease {
            expected: expected.clone(),
            offered: self.name.clone(),
        })
    }

    /// Judges this fence as a guard of `lease` does whose mark is `mark`, the greatest token
    /// admitted so far (`None` before the first). Returns the mark to write with the data; write
    /// it also if it equals the one that was read.
    ///
    /// It compares, and nothing more: the caller makes the read of `mark` and the write one atomic
    /// step, as the example of [`Fence`] shows. It has no clock, so it cannot tell a token that was
    /// made up; `Ceiling::judge` in the crate `ringfence-guard` can.
    ///
    /// # Errors
    /// [`Refused::WrongLease`], or [`Refused::StaleToken`] if `mark` is greater than this token:
    /// write nothing then.
    pub fn judge(
        &self,
        lease: &LeaseName,
        mark: Option<FencingToken>,
    ) -> Result<FencingToken, Refused> {
        self.check_lease(lease)?;
        match mark {
            Some(mark) if mark > self.token => Err(self.overtaken_by(mark)),
            _ => Ok(self.token),
        }
    }

    /// The refusal of this fence by a guard whose mark is greater: for a store that compares the
    /// tokens itself and reports its mark.
    #[must_use]
    pub fn overtaken_by(&self, mark: FencingToken) -> Refused {
        Refused::StaleToken {
            name: self.name.clone(),
            offered: self.token,
            mark,
        }
    }

    /// The refusal of this fence by a guard that admits no token above `ceiling`.
    #[must_use]
    pub fn above(&self, ceiling: FencingToken) -> Refused {
        Refused::TokenTooHigh {
            name: self.name.clone(),
            offered: self.token,
            ceiling,
        }
    }
}

fn parse_token(digits: &str) -> Result<FencingToken, InvalidFence> {
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !numeric || (digits.len() > 1 && digits.starts_with('0')) {
        return Err(InvalidFence::TokenNotANumber {
            offered: echo(digits),
        });
    }
    if digits == "0" {
        return Err(InvalidFence::TokenZero);
    }
    // Only digits are left, so a failure to parse is an overflow.
    let token = digits.parse().ok().and_then(FencingToken::new);
    token.ok_or_else(|| InvalidFence::TokenTooLarge {
        offered: echo(digits),
    })
}

/// The beginning of a text that an error repeats: it came from outside and may be of any length.
fn echo(raw: &str) -> String {
    let end = raw.floor_char_boundary(ECHO_BYTES_MAX);
    let mut text = raw[..end].escape_debug().to_string();
    if end < raw.len() {
        text.push('…');
    }
    text
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SEPARATOR}{}", self.name, self.token)
    }
}

impl FromStr for Fence {
    type Err = InvalidFence;

    fn from_str(raw: &str) -> Result<Self, InvalidFence> {
        Self::parse(raw)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn a_fence_survives_its_text_form() {
        for text in [
            "a#1",
            "db/primary#42",
            "a.b:c@d~e-f_g/h#9223372036854775807",
        ] {
            assert_eq!(Fence::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn each_bad_text_is_told_what_is_wrong_with_it() {
        let cases = [
            ("", "the fence is empty"),
            ("db", "the fence `db` has no token"),
            ("#4", "does not begin with a lease name"),
            ("a//b#4", "does not begin with a lease name"),
            ("db#", "the token `` is not a number"),
            ("db#x", "the token `x` is not a number"),
            ("db#+4", "the token `+4` is not a number"),
            ("db#-4", "the token `-4` is not a number"),
            ("db# 4", "the token ` 4` is not a number"),
            ("db#04", "the token `04` is not a number"),
            ("db#4#5", "the token `4#5` is not a number"),
            ("db#٤", "is not a number"),
            ("db#0", "the token is 0"),
            (
                "db#9223372036854775808",
                "the token 9223372036854775808 is too large",
            ),
            ("db#18446744073709551615", "is too large"),
            ("db#99999999999999999999999", "is too large"),
        ];
        for (text, expected) in cases {
            let error = Fence::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn an_error_repeats_only_the_beginning_of_a_long_text() {
        let error = Fence::parse(&"ä\n".repeat(100_000))
            .unwrap_err()
            .to_string();
        assert!(error.len() < 300, "{} bytes", error.len());
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn a_fence_is_judged_by_its_lease_and_by_the_mark() {
        let lease = LeaseName::parse("db").unwrap();
        let fence = Fence::parse("db#9").unwrap();
        for mark in [None, FencingToken::new(1), FencingToken::new(9)] {
            assert_eq!(fence.judge(&lease, mark), Ok(fence.token));
        }
        let ten = FencingToken::new(10).unwrap();
        assert_eq!(
            fence.judge(&lease, Some(ten)),
            Err(Refused::StaleToken {
                name: lease.clone(),
                offered: fence.token,
                mark: ten,
            })
        );
        let other = LeaseName::parse("db/x").unwrap();
        let refused = fence.judge(&other, None).unwrap_err();
        assert_eq!(refused.reason(), "WRONG_LEASE");
    }
}
