//! The session handle: what a client keeps of a session, and what scripts pass on.

use std::fmt;
use std::str::FromStr;

use ringfence_core::{ClusterId, Secret, SessionId};
use ringfence_proto::v1;
use ringfence_proto::wire::session_handle_to_wire;

/// A session's number and its secret: a process that has it can act for the session.
///
/// As text it is `NUMBER.SECRET.CLUSTER`, secret and cluster as 32 hexadecimal digits each; scripts pass
/// it as `RINGFENCE_SESSION`. `NUMBER.SECRET`, as releases before 0.1 wrote it, is one of whichever
/// cluster. [`Debug`](fmt::Debug) hides the secret, [`Display`](fmt::Display) shows
/// it: print a handle only to whom it is meant for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionHandle {
    /// The session's number; public.
    pub session: SessionId,
    /// What proves the session's requests.
    pub secret: Secret,
    /// The cluster that the session belongs to, if the handle says so; another one refuses it.
    pub cluster: Option<ClusterId>,
}

/// Why a text is no [`SessionHandle`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a session handle: {fault}; expected NUMBER.SECRET or NUMBER.SECRET.CLUSTER, with 32 hex digits each"
)]
#[non_exhaustive]
pub struct InvalidHandle {
    fault: &'static str,
}

impl InvalidHandle {
    const fn new(fault: &'static str) -> Self {
        Self { fault }
    }
}

impl SessionHandle {
    /// The handle as requests carry it.
    pub(crate) fn to_wire(self) -> v1::SessionHandle {
        session_handle_to_wire(self.session, &self.secret)
    }
}

impl FromStr for SessionHandle {
    type Err = InvalidHandle;

    fn from_str(text: &str) -> Result<Self, InvalidHandle> {
        let (number, secret) = text.split_once('.').ok_or(InvalidHandle::new("no dot"))?;
        let session = number
            .parse()
            .ok()
            .and_then(SessionId::new)
            .ok_or(InvalidHandle::new(
                "the part before the dot is no session number",
            ))?;
        let (secret, cluster) = match secret.split_once('.') {
            Some((secret, cluster)) => (secret, Some(cluster)),
            None => (secret, None),
        };
        let secret = parse_sixteen(secret).ok_or(InvalidHandle::new(
            "the part behind the dot is not 32 hex digits",
        ))?;
        let cluster = cluster.map(|hex| {
            let bytes = parse_sixteen(hex);
            bytes.ok_or(InvalidHandle::new(
                "the part behind the second dot is not 32 hex digits",
            ))
        });
        Ok(Self {
            session,
            secret: Secret::new(secret),
            cluster: cluster.transpose()?.map(ClusterId::new),
        })
    }
}

fn parse_sixteen(hex: &str) -> Option<[u8; 16]> {
    let digits = hex.as_bytes();
    let mut bytes = [0_u8; 16];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(bytes)
}

impl fmt::Display for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.session)?;
        self.secret
            .as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        match self.cluster {
            Some(cluster) => write!(f, ".{cluster}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionHandle({}.…)", self.session)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const TEXT: &str = "42.000102030405060708090a0b0c0d0e0f";

    #[test]
    fn a_handle_survives_its_text_form() {
        let handle: SessionHandle = TEXT.parse().unwrap();

        assert_eq!(handle.session.get(), 42);
        assert_eq!(handle.secret.as_bytes()[15], 15);
        assert_eq!(handle.to_string(), TEXT);
    }

    #[test]
    fn a_handle_that_names_its_cluster_survives_its_text_form() {
        let text = format!("{TEXT}.{}", "ab".repeat(16));
        let handle: SessionHandle = text.parse().unwrap();
        assert_eq!(handle.cluster, Some(ClusterId::new([0xab; 16])));
        assert_eq!(handle.to_string(), text);
        let refused = format!("{TEXT}.abc").parse::<SessionHandle>();
        assert!(refused.unwrap_err().to_string().contains("second dot"));
    }

    #[test]
    fn debug_hides_the_secret() {
        let handle: SessionHandle = TEXT.parse().unwrap();

        assert_eq!(format!("{handle:?}"), "SessionHandle(42.…)");
    }

    #[test]
    fn a_malformed_handle_is_refused_with_its_fault() {
        let faults = [
            ("", "no dot"),
            ("42", "no dot"),
            ("0.000102030405060708090a0b0c0d0e0f", "no session number"),
            ("-1.000102030405060708090a0b0c0d0e0f", "no session number"),
            ("42.00", "not 32 hex digits"),
            ("42.000102030405060708090a0b0c0d0eXX", "not 32 hex digits"),
            ("42.+00102030405060708090a0b0c0d0e0f", "not 32 hex digits"),
            ("42.00010203040506070809éééé0c0d0", "not 32 hex digits"),
        ];
        for (text, fault) in faults {
            let error = text.parse::<SessionHandle>().unwrap_err().to_string();
            assert!(error.contains(fault), "{text}: {error}");
            assert!(
                !error.contains("0001020304"),
                "the error shows the secret: {error}"
            );
        }
    }
}
