//! Which life of a data directory a node belongs to.

use std::fmt;

use crate::platform::runtime;

/// 128 bits drawn when a node's directory is made. A node id together with another incarnation is
/// another node, whose promises this one does not know.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation([u8; 16]);

impl Incarnation {
    pub(crate) fn draw() -> Self {
        Self(runtime::random_bytes())
    }

    /// The incarnation in `bytes`, if there are exactly 16 of them.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The 16 random bytes, as they stand on disk and on the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
