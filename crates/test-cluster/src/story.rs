//! What happened in a world, for people.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// The most lines that a story keeps: the newest ones. A scenario that writes for hours fills no
/// memory.
pub(crate) const STORY_LINES_MAX: usize = 10_000;

/// The story of a world so far. Clones are the same story.
#[derive(Clone)]
pub(crate) struct Story {
    begun: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Story {
    pub(crate) fn begin(begun: Instant) -> Self {
        let lines = Arc::default();
        Self { begun, lines }
    }

    /// Virtual time since the world began.
    pub(crate) fn time(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn say(&self, what: impl fmt::Display) {
        let mut lines = lock(&self.lines);
        if lines.len() >= STORY_LINES_MAX {
            lines.drain(..STORY_LINES_MAX / 2);
        }
        lines.push(format!("{:9.3} s  {what}", self.time().as_secs_f64()));
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lock(&self.lines)
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}
