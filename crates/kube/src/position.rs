//! Where in the life of a cluster something was true.

use std::fmt;
use std::str::FromStr;

/// Orders all states that a lease ever has: the token counter, then the index of a log entry.
///
/// The index alone would not do: a cluster that is restored begins a new log. Its token counter is
/// raised above every token of its earlier lives, so that its positions are later, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The cluster's token counter.
    pub counter: u64,
    /// The newest applied entry.
    pub index: u64,
}

/// A text that is no [`Position`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position is written COUNTER/INDEX, two decimal numbers below 2^64")]
pub struct InvalidPosition;

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.counter, self.index)
    }
}

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let (counter, index) = text.split_once('/').ok_or(InvalidPosition)?;
        Ok(Self {
            counter: decimal(counter)?,
            index: decimal(index)?,
        })
    }
}

/// A number as it is written here: one text for each, so that equal texts mean equal numbers.
fn decimal(text: &str) -> Result<u64, InvalidPosition> {
    let value: u64 = text.parse().map_err(|_| InvalidPosition)?;
    let canonical = value.to_string() == text;
    canonical.then_some(value).ok_or(InvalidPosition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_as_the_same_position() {
        for (counter, index) in [(0, 0), (1 << 52, 7), (u64::MAX, u64::MAX)] {
            let position = Position { counter, index };
            assert_eq!(position.to_string().parse(), Ok(position));
        }
    }

    #[test]
    fn other_texts_are_no_positions() {
        for text in [
            "", "/", "1", "1/", "/1", "+1/1", "01/1", "1/1/1", " 1/1", "1/-1",
        ] {
            assert_eq!(text.parse::<Position>(), Err(InvalidPosition), "{text:?}");
        }
    }

    #[test]
    fn a_restored_cluster_is_later_although_its_log_begins_anew() {
        let before = Position {
            counter: 10,
            index: 5_000,
        };
        let restored = Position {
            counter: 11,
            index: 3,
        };
        assert!(before < restored);
    }
}
