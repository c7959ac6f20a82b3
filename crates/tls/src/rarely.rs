//! A log line that anybody on the network can cause is written once in a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two such lines.
const PAUSE: Duration = Duration::from_secs(10);
/// The most kinds of lines that a [`RarelyEach`] paces apart.
const KINDS_MAX: usize = 16;

/// One kind of log line: at most one in 10 s is written.
#[derive(Debug)]
pub struct Rarely {
    said: Option<Instant>,
    unsaid: u64,
}

impl Default for Rarely {
    fn default() -> Self {
        Self::new()
    }
}

impl Rarely {
    /// A kind of line of which none was written yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            said: None,
            unsaid: 0,
        }
    }

    /// Whether to write the line now, and how many were left out since the last one.
    pub fn say(&mut self) -> Option<u64> {
        #[expect(
            clippy::disallowed_methods,
            reason = "paces log lines; decides nothing"
        )]
        let now = Instant::now();
        if self
            .said
            .is_some_and(|said| now.saturating_duration_since(said) < PAUSE)
        {
            self.unsaid += 1;
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// Kinds of log lines, distinguished by a text, of which each is written at most once in 10 s: 16
/// of them, and all others together.
#[derive(Debug, Default)]
pub struct RarelyEach {
    kinds: BTreeMap<String, Rarely>,
    others: Rarely,
}

impl RarelyEach {
    /// Whether to write the line of this kind, and how many were left out since the last one.
    pub fn say(&mut self, kind: &str) -> Option<u64> {
        if let Some(line) = self.kinds.get_mut(kind) {
            return line.say();
        }
        // The other side may choose the text, and must not choose how much is remembered or logged.
        match self.kinds.len() < KINDS_MAX {
            true => self.kinds.entry(kind.to_owned()).or_default().say(),
            false => self.others.say(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_paced_by_itself_until_there_are_too_many() {
        let mut lines = RarelyEach::default();
        assert_eq!(lines.say("a"), Some(0));
        assert_eq!(lines.say("a"), None);
        assert_eq!(lines.say("b"), Some(0));
        let said = (0..1_000).filter_map(|n| lines.say(&n.to_string()));
        assert_eq!(said.count(), KINDS_MAX - 2 + 1);
        assert_eq!(lines.kinds.len(), KINDS_MAX);
    }

    #[test]
    fn a_flood_of_lines_becomes_one() {
        let mut lines = Rarely::new();
        let said: Vec<_> = (0..1_000).filter_map(|_| lines.say()).collect();
        assert_eq!(said, [0]);
    }
}
