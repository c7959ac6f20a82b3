//! Session handles as text: `NUMBER.SECRET` or `NUMBER.SECRET.CLUSTER`, with 32 hexadecimal digits each. What was offered
//! is never repeated in a refusal, since it may hold a secret.

use std::fmt::Write;

use bytes::Bytes;
use ringfence_core::ClusterId;
use ringfence_proto::text::{from_hex, hex};
use ringfence_proto::{Refusal, v1};

/// The bytes of a secret, and of the id of an open.
pub(crate) const SECRET_BYTES: usize = 16;

/// What a refusal says instead of what was offered.
const HIDDEN: &str = "something else";

/// A handle as its caller wrote it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) session: v1::SessionHandle,
    /// The cluster that it names; `None` if it names none.
    cluster: Option<Bytes>,
}

impl Handle {
    /// The session, unless the handle names another cluster than `own`: its number may be that of
    /// another session here. A node that belongs to no cluster yet knows no session either.
    pub(crate) fn of(self, own: Option<ClusterId>) -> Result<v1::SessionHandle, Refusal> {
        match (self.cluster, own) {
            (Some(named), Some(own)) if named[..] != own.as_bytes()[..] => {
                Err(Refusal::cluster_changed(hex(&named), own))
            }
            _ => Ok(self.session),
        }
    }
}

/// Reads a handle.
pub(crate) fn parse(text: &str) -> Result<Handle, Refusal> {
    let read = || {
        let (number, secret) = text.split_once('.')?;
        let (secret, cluster) = match secret.split_once('.') {
            Some((secret, cluster)) => (secret, Some(sixteen(cluster)?)),
            None => (secret, None),
        };
        let plain = !number.starts_with('0') && number.bytes().all(|byte| byte.is_ascii_digit());
        let session = plain.then(|| number.parse().ok()).flatten()?;
        Some(Handle {
            session: v1::SessionHandle {
                session,
                secret: sixteen(secret)?,
            },
            cluster,
        })
    };
    read().ok_or_else(|| {
        let allowed = "NUMBER.SECRET, as the answer that opened the session has it";
        Refusal::invalid("session", HIDDEN, allowed)
    })
}

/// Reads a secret.
pub(crate) fn secret(text: &str) -> Result<Bytes, Refusal> {
    let allowed = "32 hexadecimal digits, random and kept to oneself";
    sixteen(text).ok_or_else(|| Refusal::invalid("secret", HIDDEN, allowed))
}

/// 16 bytes as 32 hexadecimal digits.
pub(crate) fn sixteen(text: &str) -> Option<Bytes> {
    let plain = text.len() == 2 * SECRET_BYTES;
    plain.then(|| from_hex(text)).flatten().map(Bytes::from)
}

/// The handle as text. It holds the secret: it is shown to the session's own caller alone.
pub(crate) fn shown(handle: &v1::SessionHandle) -> String {
    let mut text = format!("{}.", handle.session);
    // Writing to a `String` cannot fail.
    write!(text, "{}", hex(&handle.secret)).ok();
    text
}

#[cfg(test)]
mod tests {
    use ringfence_proto::v1::Reason;

    use super::*;

    #[test]
    fn a_handle_is_read_as_it_is_shown_and_nothing_else_is_one() {
        let text = "17.0b0102030405060708090a0b0c0d0e0f";
        let handle = parse(text).unwrap().of(None).unwrap();
        assert_eq!((handle.session, handle.secret.len()), (17, 16));
        assert_eq!(shown(&handle), text);
        let named = || parse(&format!("{text}.{}", "ab".repeat(16))).unwrap();
        let (own, other) = (ClusterId::new([0xab; 16]), ClusterId::new([1; 16]));
        assert_eq!(named().of(Some(own)), Ok(handle));
        let refused = named().of(Some(other)).unwrap_err();
        assert_eq!(refused.reason, Reason::ClusterChanged);
        for other in [
            "",
            "17",
            "17.",
            ".0b0102030405060708090a0b0c0d0e0f",
            "0.0b0102030405060708090a0b0c0d0e0f",
            "017.0b0102030405060708090a0b0c0d0e0f",
            "+17.0b0102030405060708090a0b0c0d0e0f",
            "17.0b0102030405060708090a0b0c0d0e0",
            "17.0b0102030405060708090a0b0c0d0e0f0f",
            "17.xb0102030405060708090a0b0c0d0e0f",
            " 17.0b0102030405060708090a0b0c0d0e0f",
            "17.0b0102030405060708090a0b0c0d0e0f.",
            "17.0b0102030405060708090a0b0c0d0e0f.ab",
        ] {
            let refused = parse(other).unwrap_err();
            let shown = format!("{refused:?}");
            assert!(!shown.contains("0b01020304"), "{shown}");
        }
    }
}
