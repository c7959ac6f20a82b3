//! The two times of the replicated state: cluster time, which decides, and wall time, which is
//! kept for people and decides nothing.

use core::fmt;

/// A length of cluster time in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// No end at all: the TTL of a session that is bound to something else.
    pub const FOREVER: Self = Self(u64::MAX);

    /// This many seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }
}

impl fmt::Debug for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A point of cluster time: milliseconds counted by the cluster since it was formed. It never
/// goes back, never runs faster than true time, and stands still while nothing can commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClusterTime(pub u64);

impl ClusterTime {
    /// The end of time, which does not come.
    pub const NEVER: Self = Self(u64::MAX);

    /// `self` and `length` more, at most the end of time.
    #[must_use]
    pub const fn after(self, length: Millis) -> Self {
        Self(self.0.saturating_add(length.0))
    }

    /// From `earlier` to `self`, zero if `earlier` is the later one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for ClusterTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t={}", self.0)
    }
}

impl fmt::Display for ClusterTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Wall time: milliseconds since the Unix epoch as a proposer's clock showed them, kept from going
/// back by `apply`. For people and logs only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct WallTime(pub u64);
