//! The text of a mark, as guards keep it in a key or a file of its own.
//!
//! ```text
//! ringfence-mark 1
//! lease bank/balance
//! mark 0000000000000000009
//! ```
//!
//! The number behind `ringfence-mark` is the version of this text. A reader refuses a version that it does
//! not know: what a newer release wrote may mean more than the token.

use ringfence_core::{FencingToken, LeaseName};

/// Decimal digits of a mark: as many as the greatest token has.
const DIGITS: usize = 19;

/// The version that is written, and the only one that is read.
const VERSION: &str = "1";

/// Why a text is not the mark of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Something else has written it.
    Damaged(&'static str),
    /// A newer release has written it.
    OtherVersion(String),
    /// It is the mark of another lease.
    OtherLease(LeaseName),
}

/// The text of this mark.
pub(crate) fn encode(name: &LeaseName, mark: FencingToken) -> String {
    format!(
        "ringfence-mark {VERSION}\nlease {name}\nmark {:0DIGITS$}\n",
        mark.get()
    )
}

/// The mark in a text, and what follows its three lines.
pub(crate) fn decode<'a>(
    text: &'a [u8],
    name: &LeaseName,
) -> Result<(FencingToken, &'a str), Unreadable> {
    let damaged = Unreadable::Damaged;
    let text = str::from_utf8(text).map_err(|_| damaged("it is not UTF-8"))?;
    let (version, text) = line(text, "ringfence-mark ")
        .ok_or(damaged("its first line is not `ringfence-mark VERSION`"))?;
    if version != VERSION {
        // Bounded: an error is not as long as what a stranger wrote.
        let version = version.chars().take(DIGITS).collect();
        return Err(Unreadable::OtherVersion(version));
    }
    let (lease, text) =
        line(text, "lease ").ok_or(damaged("its second line is not `lease NAME`"))?;
    let lease = LeaseName::parse(lease).map_err(|_| damaged("it names no valid lease"))?;
    if lease != *name {
        return Err(Unreadable::OtherLease(lease));
    }
    let (digits, rest) =
        line(text, "mark ").ok_or(damaged("its third line is not `mark TOKEN`"))?;
    if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(damaged("its token has not 19 digits"));
    }
    let mark = digits.parse().ok().and_then(FencingToken::new);
    match mark {
        Some(mark) => Ok((mark, rest)),
        None => Err(damaged("its token is not between 1 and 2^63 - 1")),
    }
}

/// What follows `key` in the first line of a text, and the lines behind it.
pub(crate) fn line<'a>(text: &'a str, key: &str) -> Option<(&'a str, &'a str)> {
    let (line, rest) = text.split_once('\n')?;
    Some((line.strip_prefix(key)?, rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn name() -> LeaseName {
        LeaseName::parse("bank/balance").unwrap()
    }

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        for value in [1, 9, (1 << 53) + 1, FencingToken::MAX] {
            let text = encode(&name(), token(value));
            assert_eq!(decode(text.as_bytes(), &name()), Ok((token(value), "")));
        }
        let more = encode(&name(), token(9)) + "more\n";
        assert_eq!(decode(more.as_bytes(), &name()), Ok((token(9), "more\n")));
    }

    #[test]
    fn what_is_no_mark_is_refused_with_the_reason() {
        let read = |text: &str| decode(text.as_bytes(), &name()).unwrap_err();
        let good = encode(&name(), token(9));
        for broken in [
            "",
            "junk",
            &good[..good.len() - 1],
            &good.replace("009\n", "09\n"),
            &good.replace("000000000000000000", "-00000000000000000"),
            &good.replace("0000000000000000009", "0000000000000000000"),
            &good.replace("0000000000000000009", "9223372036854775808"),
            &good.replace("bank/balance", "../balance"),
        ] {
            assert!(matches!(read(broken), Unreadable::Damaged(_)), "{broken}");
        }
        let newer = good.replace("mark 1", "mark 2");
        assert_eq!(read(&newer), Unreadable::OtherVersion("2".into()));
        let other = LeaseName::parse("bank/other").unwrap();
        let theirs = encode(&other, token(9));
        assert_eq!(read(&theirs), Unreadable::OtherLease(other));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn any_bytes_are_read_or_refused(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            junk in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut text = encode(&name(), token(9)).into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            drop(decode(&text, &name()));
            drop(decode(&junk, &name()));
        }
    }
}
