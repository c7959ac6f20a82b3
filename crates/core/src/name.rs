//! Texts that people choose: lease names, identities, holder data. Parsed once, at the edge.

use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;

/// The longest lease name, in bytes.
pub const LEASE_NAME_BYTES_MAX: usize = 255;
/// The longest identity, in bytes.
pub const IDENTITY_BYTES_MAX: usize = 255;
/// The most holder data a grant carries, in bytes.
pub const HOLDER_DATA_BYTES_MAX: usize = 1024;

/// A text that was parsed once. `Debug` shows it as a text, without the type's name.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}
pub(crate) use text;

text! {
    /// The name of a lease: 1 to 255 bytes, segments of `[A-Za-z0-9._~:@-]` joined by single `/`;
    /// `.` and `..` are no segments.
    LeaseName
}

/// Why a text is no [`LeaseName`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidName {
    /// It is empty.
    Empty,
    /// It is longer than [`LEASE_NAME_BYTES_MAX`].
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It begins or ends with `/`, or has two of them in a row.
    EmptySegment {
        /// The byte at which the empty segment stands.
        at: usize,
    },
    /// One of its segments is `.` or `..`.
    DotSegment {
        /// The byte at which that segment begins.
        at: usize,
    },
    /// It contains a byte that is not allowed.
    Forbidden {
        /// Where the byte stands.
        at: usize,
        /// The byte.
        byte: u8,
    },
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the name is empty")?,
            Self::TooLong { bytes } => write!(f, "the name has {bytes} bytes")?,
            Self::EmptySegment { at } => write!(f, "an empty segment at byte {at}")?,
            Self::DotSegment { at } => write!(f, "a segment `.` or `..` at byte {at}")?,
            Self::Forbidden { at, byte } => {
                write!(f, "byte {byte:#04x} at {at} is not allowed")?;
            }
        }
        write!(
            f,
            "; a lease name is 1 to {LEASE_NAME_BYTES_MAX} bytes, segments of letters, digits and \
             ._~:@- joined by single slashes"
        )
    }
}

impl core::error::Error for InvalidName {}

impl LeaseName {
    /// Parses a name.
    ///
    /// # Errors
    /// [`InvalidName`] says what is wrong with it, where, and what is allowed.
    pub fn parse(raw: &str) -> Result<Self, InvalidName> {
        let bytes = raw.as_bytes();
        if bytes.is_empty() {
            return Err(InvalidName::Empty);
        }
        if bytes.len() > LEASE_NAME_BYTES_MAX {
            return Err(InvalidName::TooLong { bytes: bytes.len() });
        }
        let mut at = 0;
        for segment in bytes.split(|&byte| byte == b'/') {
            check_segment(segment, at)?;
            at += segment.len() + 1;
        }
        Ok(Self(Arc::from(raw)))
    }
}

fn check_segment(segment: &[u8], at: usize) -> Result<(), InvalidName> {
    if segment.is_empty() {
        return Err(InvalidName::EmptySegment { at });
    }
    if segment == b"." || segment == b".." {
        return Err(InvalidName::DotSegment { at });
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._~:@-".contains(&byte);
    match segment.iter().position(|&byte| !allowed(byte)) {
        Some(within) => Err(InvalidName::Forbidden {
            at: at + within,
            byte: segment[within],
        }),
        None => Ok(()),
    }
}

impl Borrow<str> for LeaseName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

text! {
    /// Who a session says it is: a text for people, at most 255 bytes, without control characters. It
    /// proves nothing.
    Identity
}

/// Why a text is no [`Identity`], or bytes no [`HolderData`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidText {
    /// More bytes than allowed.
    TooLong {
        /// How many there are.
        bytes: usize,
        /// How many there may be.
        max: usize,
    },
    /// A control character.
    Control {
        /// The byte at which it stands.
        at: usize,
    },
}

impl fmt::Display for InvalidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes, max } => write!(f, "{bytes} bytes, at most {max} are allowed"),
            Self::Control { at } => write!(f, "a control character at byte {at}"),
        }
    }
}

impl core::error::Error for InvalidText {}

impl Identity {
    /// That of a session of which nothing is known.
    pub(crate) fn unknown() -> Self {
        Self(Arc::from("unknown"))
    }

    /// Parses an identity; it may be empty.
    ///
    /// # Errors
    /// [`InvalidText`] if it is longer than [`IDENTITY_BYTES_MAX`] or has a control character.
    pub fn parse(raw: &str) -> Result<Self, InvalidText> {
        if raw.len() > IDENTITY_BYTES_MAX {
            return Err(InvalidText::TooLong {
                bytes: raw.len(),
                max: IDENTITY_BYTES_MAX,
            });
        }
        match raw.char_indices().find(|(_, letter)| letter.is_control()) {
            Some((at, _)) => Err(InvalidText::Control { at }),
            None => Ok(Self(Arc::from(raw))),
        }
    }
}

/// Up to 1 KiB that a holder publishes with its grant, an address for example.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HolderData(Option<Arc<[u8]>>);

impl HolderData {
    /// Holder data of these bytes; none at all is fine.
    ///
    /// # Errors
    /// [`InvalidText::TooLong`] above [`HOLDER_DATA_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidText> {
        if bytes.len() > HOLDER_DATA_BYTES_MAX {
            return Err(InvalidText::TooLong {
                bytes: bytes.len(),
                max: HOLDER_DATA_BYTES_MAX,
            });
        }
        Ok(Self((!bytes.is_empty()).then(|| Arc::from(bytes))))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
