//! Who a request was proven to come from.

use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;

use crate::name::text;

/// The longest principal, in bytes.
pub const PRINCIPAL_BYTES_MAX: usize = 255;

/// How a principal may begin. What ends in `:` is followed by a name.
pub(crate) const KINDS: [&str; 10] = [
    "cert:uri:",
    "cert:dns:",
    "cert:email:",
    "cert:cn:",
    "jwt:",
    "sa:",
    "token:",
    "node:",
    Principal::LOCAL,
    Principal::ANONYMOUS,
];

text! {
    /// Who a request was proven to come from: 1 to 255 bytes of printable ASCII without spaces
    /// and `*`, compared byte by byte. One of `cert:{uri|dns|email|cn}:NAME`, `jwt:ALIAS:SUBJECT`,
    /// `sa:ALIAS:NAMESPACE/NAME`, `token:NAME`, `node:NAME`, `local` and `anonymous`.
    Principal
}

/// Why a text is no [`Principal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidPrincipal {
    /// It begins as no principal does, or has no name behind its kind.
    UnknownKind,
    /// It is longer than [`PRINCIPAL_BYTES_MAX`].
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It contains a byte that is not printable ASCII, a space, or a `*`.
    Forbidden {
        /// Where the byte stands.
        at: usize,
        /// The byte.
        byte: u8,
    },
}

impl fmt::Display for InvalidPrincipal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind => f.write_str("it has no known kind with a name behind it")?,
            Self::TooLong { bytes } => write!(f, "it has {bytes} bytes")?,
            Self::Forbidden { at, byte } => write!(f, "byte {byte:#04x} at {at} is not allowed")?,
        }
        write!(
            f,
            "; a principal is at most {PRINCIPAL_BYTES_MAX} bytes of printable ASCII without \
             spaces and `*`: cert:{{uri|dns|email|cn}}:NAME, jwt:ALIAS:SUBJECT, sa:ALIAS:NAMESPACE/NAME, \
             token:NAME, node:NAME, local or anonymous"
        )
    }
}

impl core::error::Error for InvalidPrincipal {}

/// Whether every byte may stand in a principal, and there are not too many.
pub(crate) fn check_bytes(raw: &str) -> Result<(), InvalidPrincipal> {
    let bytes = raw.len();
    if bytes > PRINCIPAL_BYTES_MAX {
        return Err(InvalidPrincipal::TooLong { bytes });
    }
    // A `*` would make a pattern of it: a rule for the one whom an issuer calls `*` is for all of them.
    let forbidden = |byte: &u8| !byte.is_ascii_graphic() || *byte == b'*';
    match raw.bytes().enumerate().find(|(_, byte)| forbidden(byte)) {
        Some((at, byte)) => Err(InvalidPrincipal::Forbidden { at, byte }),
        None => Ok(()),
    }
}

impl Principal {
    /// What a caller is called that has proven nothing.
    pub const ANONYMOUS: &str = "anonymous";
    /// What a caller is called that could open the socket in a node's data directory.
    pub const LOCAL: &str = "local";

    /// Parses a principal.
    ///
    /// # Errors
    /// [`InvalidPrincipal`] says what is wrong with it, where, and what is allowed.
    pub fn parse(raw: &str) -> Result<Self, InvalidPrincipal> {
        check_bytes(raw)?;
        let known = KINDS.iter().any(|kind| match kind.ends_with(':') {
            true => raw.len() > kind.len() && raw.starts_with(kind),
            false => raw == *kind,
        });
        match known {
            true => Ok(Self(Arc::from(raw))),
            false => Err(InvalidPrincipal::UnknownKind),
        }
    }

    /// A caller that has proven nothing.
    #[must_use]
    pub fn anonymous() -> Self {
        Self(Arc::from(Self::ANONYMOUS))
    }

    /// Whether cluster tokens, and nothing else, prove it.
    pub(crate) fn is_of_token(&self) -> bool {
        self.0.starts_with("token:")
    }

    /// A caller that could open the socket in a node's data directory.
    #[must_use]
    pub fn local() -> Self {
        Self(Arc::from(Self::LOCAL))
    }
}

/// The namespace of a service account of Kubernetes.
pub(crate) fn namespace_of(principal: &str) -> Option<&str> {
    let (_, account) = principal.strip_prefix("sa:")?.split_once(':')?;
    Some(account.split_once('/')?.0)
}

impl Borrow<str> for Principal {
    fn borrow(&self) -> &str {
        &self.0
    }
}
