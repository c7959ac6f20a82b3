//! How a write carries its fence to the API server.

use std::fmt;
use std::str::FromStr;

/// The key under which a client that impersonates itself adds its fence to who it is, in
/// `userInfo.extra`. Exactly one value is admitted: `LEASE#TOKEN`.
pub const FENCE_EXTRA: &str = "ringfence.io/fence";

/// The annotation that a write with [`Carrier::Sequence`] sets: `LEASE#TOKEN.NUMBER`, where the
/// number is greater with every write under one token.
pub const STAMP: &str = "ringfence.io/stamp";

/// The longest name of a field manager, in bytes; the API server's own limit.
pub const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// The greatest number in a [`STAMP`].
pub const STAMP_NUMBER_MAX: u64 = 999_999_999_999_999_999;

/// How a write carries its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// In `userInfo.extra`, by impersonating itself: every kind of write, deletions too. Needs the
    /// right to impersonate itself.
    Impersonate,
    /// As the name of the field manager: every write but deletions and server-side apply, where
    /// that name says who owns a field.
    FieldManager,
    /// In an annotation that each write sets, with a number that grows: neither deletions nor
    /// scale, and nothing is needed for it.
    Sequence,
}

/// A text that names no [`Carrier`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no carrier of fences; there are impersonate, field-manager and sequence")]
pub struct UnknownCarrier(String);

impl Carrier {
    /// All carriers, in the order in which help texts list them.
    pub const ALL: [Self; 3] = [Self::Impersonate, Self::FieldManager, Self::Sequence];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Impersonate => "impersonate",
            Self::FieldManager => "field-manager",
            Self::Sequence => "sequence",
        }
    }

    /// Where the fence stands, as refusals say it.
    pub(super) fn place(self) -> String {
        match self {
            Self::Impersonate => format!("userInfo.extra {FENCE_EXTRA}"),
            Self::FieldManager => "the name of the field manager".to_owned(),
            Self::Sequence => format!("annotation {STAMP}"),
        }
    }

    /// Whether a deletion can carry a fence.
    pub(crate) const fn deletes(self) -> bool {
        matches!(self, Self::Impersonate)
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Carrier {
    type Err = UnknownCarrier;

    fn from_str(text: &str) -> Result<Self, UnknownCarrier> {
        let named = |carrier: &Self| carrier.name() == text;
        let found = Self::ALL.into_iter().find(named);
        found.ok_or_else(|| UnknownCarrier(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_is_read_as_it_is_shown() {
        for carrier in Carrier::ALL {
            assert_eq!(carrier.to_string().parse(), Ok(carrier));
        }
        let refused = "annotation".parse::<Carrier>().unwrap_err().to_string();
        assert!(refused.contains("impersonate, field-manager"), "{refused}");
    }
}
