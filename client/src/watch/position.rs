//! Places in the stream of a cluster's events.

use std::fmt;
use std::str::FromStr;

use ringfence_core::ClusterId;
use ringfence_proto::wire::{WirePosition, position_from_wire, position_to_wire};
use ringfence_proto::{DecodeError, v1};

/// A place in the stream of a cluster's events. A watch goes on behind it, also that of another
/// process, and of another prefix.
///
/// As text it is `CLUSTER.INDEX.N.TERM`, or `CLUSTER.INDEX.N` if the term is not known, as
/// `ringfence lease watch --json` prints it: keep it in this form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Position(WirePosition);

/// Why a text is no [`Position`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPosition(String);

impl Position {
    /// The cluster whose log it is; 16 bytes that no other cluster has, and that a restored one
    /// changes.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.0.cluster
    }

    /// The index of the log entry that it lies in, or behind.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.0.index
    }

    /// How many events of that entry lie before it; `None`: all of them.
    #[must_use]
    pub fn events(&self) -> Option<u32> {
        (self.0.n != u32::MAX).then_some(self.0.n)
    }

    pub(crate) fn from_wire(position: &v1::Position) -> Result<Self, DecodeError> {
        match position_from_wire(position) {
            Ok(position) => Ok(Self(position)),
            Err(refusal) => Err(DecodeError::Invalid {
                field: "position",
                why: refusal.message,
            }),
        }
    }

    pub(crate) fn to_wire(self) -> v1::Position {
        position_to_wire(self.0)
    }
}

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        match text.parse() {
            Ok(position) => Ok(Self(position)),
            Err(fault) => Err(InvalidPosition(fault)),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Position({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_its_text_form_and_the_wire() {
        for (text, index, events) in [
            ("000102030405060708090a0b0c0d0e0f.42.3", 42, Some(3)),
            ("000102030405060708090a0b0c0d0e0f.42.4294967295.7", 42, None),
        ] {
            let position: Position = text.parse().expect("it is one");
            assert_eq!(position.to_string(), text);
            assert_eq!((position.index(), position.events()), (index, events));
            assert_eq!(Position::from_wire(&position.to_wire()), Ok(position));
        }
    }

    #[test]
    fn a_position_of_no_cluster_is_none() {
        let error = Position::from_wire(&v1::Position::default()).expect_err("it has no cluster");
        assert!(error.to_string().contains("cluster_id"), "{error}");
        let error = "42.3".parse::<Position>().expect_err("it has no cluster");
        assert!(error.to_string().contains("CLUSTER.INDEX.N"), "{error}");
    }
}
