//! Who a request was proven to come from, as text.

use std::fmt;
use std::sync::Arc;

/// The longest principal, in bytes.
pub const PRINCIPAL_BYTES_MAX: usize = 255;

/// Who a request was proven to come from: 1 to 255 bytes of printable ASCII without spaces, compared
/// byte by byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

/// Why a text is no [`Principal`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPrincipal {
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It is longer than [`PRINCIPAL_BYTES_MAX`].
    #[error("it has {bytes} bytes")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It contains a byte that is not printable ASCII, or a space.
    #[error("byte {byte:#04x} at {at} is not allowed")]
    Forbidden {
        /// Where the byte stands.
        at: usize,
        /// The byte.
        byte: u8,
    },
}

impl Principal {
    /// Parses a principal.
    ///
    /// # Errors
    /// [`InvalidPrincipal`].
    pub fn parse(raw: &str) -> Result<Self, InvalidPrincipal> {
        let bytes = raw.len();
        if bytes == 0 {
            return Err(InvalidPrincipal::Empty);
        }
        if bytes > PRINCIPAL_BYTES_MAX {
            return Err(InvalidPrincipal::TooLong { bytes });
        }
        let forbidden = |byte: &u8| !byte.is_ascii_graphic();
        match raw.bytes().enumerate().find(|(_, byte)| forbidden(byte)) {
            Some((at, byte)) => Err(InvalidPrincipal::Forbidden { at, byte }),
            None => Ok(Self(Arc::from(raw))),
        }
    }

    /// A caller that has proven nothing.
    #[must_use]
    pub fn anonymous() -> Self {
        Self(Arc::from("anonymous"))
    }

    /// A caller that could open the socket in a node's data directory.
    #[must_use]
    pub fn local() -> Self {
        Self(Arc::from("local"))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
