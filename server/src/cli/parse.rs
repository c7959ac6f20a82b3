//! Values on the command line that are checked before anything is sent.

use ringfence_core::{ClusterId, Fence, FencingToken, LeaseName, Mode, SessionId};
use ringfence_proto::text::from_hex;

/// A lease name.
///
/// # Errors
/// What is wrong with it, and what is allowed.
pub(super) fn name(raw: &str) -> Result<LeaseName, String> {
    LeaseName::parse(raw).map_err(|cause| cause.to_string())
}

/// A fencing token.
///
/// # Errors
/// If it is no number, 0, or above the greatest token there can be.
pub(super) fn token(raw: &str) -> Result<FencingToken, String> {
    let token = raw.parse().ok().and_then(FencingToken::new);
    token.ok_or_else(|| format!("a token is a whole number of 1 to {}", FencingToken::MAX))
}

/// A fence, as a grant is shown to a store.
///
/// # Errors
/// What is wrong with it, and what is allowed.
pub(super) fn fence(raw: &str) -> Result<Fence, String> {
    Fence::parse(raw).map_err(|cause| cause.to_string())
}

/// A session's number, or its handle, of which only the number is used.
///
/// # Errors
/// What is allowed.
pub(super) fn session(raw: &str) -> Result<SessionId, String> {
    let number = raw.split_once('.').map_or(raw, |(number, _)| number);
    let number = number.parse().ok().and_then(SessionId::new);
    number.ok_or_else(|| "a session is its number, 1 or greater, or its handle".to_owned())
}

/// A cluster's id.
///
/// # Errors
/// What is allowed.
pub(super) fn cluster_id(raw: &str) -> Result<ClusterId, String> {
    let read = from_hex(raw).and_then(|bytes| ClusterId::from_slice(&bytes));
    read.ok_or_else(|| "expected the 32 hexadecimal digits of a cluster's id".to_owned())
}

/// How much rights bind.
///
/// # Errors
/// What is allowed.
pub(super) fn mode(raw: &str) -> Result<Mode, String> {
    let all = [Mode::Off, Mode::Permissive, Mode::Enforced];
    let found = all.into_iter().find(|mode| mode.as_str() == raw);
    found.ok_or_else(|| "expected off, permissive or enforced".to_owned())
}

/// A word as a shell takes it.
pub(super) fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._:=,+@%-".contains(&byte);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_cannot_be_granted_are_refused() {
        for raw in [
            "",
            "0",
            "-1",
            "x",
            "9223372036854775808",
            "18446744073709551615",
        ] {
            assert!(token(raw).is_err(), "{raw:?} was read as a token");
        }
        assert_eq!(
            token("9223372036854775807").map(FencingToken::get),
            Ok(FencingToken::MAX)
        );
    }

    #[test]
    fn a_quoted_word_is_one_word_to_a_shell() {
        assert_eq!(quote("--endpoints=unix:/tmp/a"), "--endpoints=unix:/tmp/a");
        assert_eq!(quote("*"), "'*'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn a_handle_names_its_session() {
        assert_eq!(session("42").map(SessionId::get), Ok(42));
        assert_eq!(
            session("42.000102030405060708090a0b0c0d0e0f").map(SessionId::get),
            Ok(42)
        );
        assert!(session("0").is_err());
    }
}
