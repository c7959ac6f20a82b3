//! Identifiers. Each is a type of its own, so that two of them cannot be swapped; absence is
//! `Option`, never zero.

use core::fmt;
use core::num::NonZeroU64;

/// A number that is never 0. `$debug` is the format of its `Debug` form.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $debug:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU64);

        impl $name {
            const fn from_non_zero(value: u64) -> Option<Self> {
                match NonZeroU64::new(value) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// The value, as wires and files carry it.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0.get()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $debug, self.0)
            }
        }
    };
}

number! {
    /// A fencing token: strictly greater than every token granted before it, on any lease, over the
    /// cluster's whole life. `0 < token < 2^63`.
    ///
    /// A token names a grant. It authorises nothing at the cluster and says nothing about *now*; only
    /// a guard inside the store decides whether a write may pass.
    FencingToken, "token {}"
}
number! {
    /// A session's number: the cluster gives them out in order and never again.
    SessionId, "session {}"
}
number! {
    /// The number a session gives to one of its requests: 1, 2, 3 and so on.
    RequestNumber, "RequestNumber({})"
}

impl FencingToken {
    /// The greatest token there can be, 2^63 − 1.
    pub const MAX: u64 = (1 << 63) - 1;

    /// A term raises the counter of tokens to its leader's clock, in seconds since 1970, shifted left
    /// by so many bits. They leave room for a million grants a second.
    pub const CLOCK_SHIFT: u32 = 20;

    /// The token with this value, unless it is 0 or above [`FencingToken::MAX`].
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        match value {
            0..=Self::MAX => Self::from_non_zero(value),
            _ => None,
        }
    }
}

impl SessionId {
    /// The first number of a cluster.
    pub(crate) const FIRST: Self = Self(NonZeroU64::MIN);

    /// The session with this number, unless it is 0.
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        Self::from_non_zero(value)
    }
}

impl RequestNumber {
    /// The first number of every session.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The request number with this value, unless it is 0.
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        Self::from_non_zero(value)
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// The value with these 16 bytes.
            #[must_use]
            pub const fn new(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The value in `bytes`, if there are exactly 16 of them.
            #[must_use]
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }

            /// The 16 bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }
    };
}

random_id! {
    /// The 128-bit name a client gives to its `Open`, so that a repeated one opens nothing new.
    OpenId
}
random_id! {
    /// A session's 128-bit secret, made by its client. Neither `Debug` nor `Display` shows it.
    Secret
}
random_id! {
    /// A cluster's 128-bit name, drawn when it is formed or restored.
    ClusterId
}

/// Lower-case hexadecimal.
fn write_hex(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{:032x}", u128::from_be_bytes(*bytes))
}

impl fmt::Debug for OpenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("open ")?;
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Secret {
    /// Whether `offered` is this secret, in a time that does not depend on where they differ.
    #[must_use]
    pub fn proves(&self, offered: &Self) -> bool {
        let differing = self
            .0
            .iter()
            .zip(&offered.0)
            .fold(0, |acc, (a, b)| acc | (a ^ b));
        differing == 0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}
