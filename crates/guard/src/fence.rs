//! The fence: what a holder shows to a guard.

use std::fmt;
use std::str::FromStr;

use ringfence_core::{FencingToken, InvalidName, LeaseName};
use ringfence_planted::{Bug, planted};

use crate::Refused;

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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The lease that is held.
    pub name: LeaseName,
    /// The token of the grant.
    pub token: FencingToken,
}

/// Why a text is no [`Fence`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFence {
    /// There is no text at all.
    #[error("the fence is empty; a fence is NAME#TOKEN, for example db/primary#42")]
    Empty,
    /// There is no `#`, hence no token.
    #[error("the fence `{offered}` has no token; a fence is NAME#TOKEN, for example db/primary#42")]
    MissingToken {
        /// The text, cut after 64 bytes.
        offered: String,
    },
    /// What stands before the `#` is no lease name.
    #[error("the fence does not begin with a lease name")]
    Name(#[source] InvalidName),
    /// What stands after the `#` is no number.
    #[error(
        "the token `{offered}` is not a number; a token is 1 to {max} in decimal digits, without \
         sign, blanks or leading zeros",
        max = FencingToken::MAX
    )]
    TokenNotANumber {
        /// What stands there, cut after 64 bytes.
        offered: String,
    },
    /// The token is 0, which is never granted.
    #[error("the token is 0, which is never granted; a token is 1 to {max}", max = FencingToken::MAX)]
    TokenZero,
    /// The token is above [`FencingToken::MAX`].
    #[error("the token {offered} is too large; a token is 1 to {max}", max = FencingToken::MAX)]
    TokenTooLarge {
        /// The digits, cut after 64 bytes.
        offered: String,
    },
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

    /// Refuses the fence of any lease but `expected`.
    pub(crate) fn check_lease(&self, expected: &LeaseName) -> Result<(), Refused> {
        if self.name == *expected || planted(Bug::AnyLeaseAdmitted) {
            return Ok(());
        }
        Err(Refused::WrongLease {
            expected: expected.clone(),
            offered: self.name.clone(),
        })
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
}
