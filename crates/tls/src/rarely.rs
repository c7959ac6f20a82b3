//! A log line that anybody on the network can cause is written once in a while.

use std::time::{Duration, Instant};

/// Between two such lines.
const PAUSE: Duration = Duration::from_secs(10);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_becomes_one() {
        let mut lines = Rarely::new();
        let said: Vec<_> = (0..1_000).filter_map(|_| lines.say()).collect();
        assert_eq!(said, [0]);
    }
}
