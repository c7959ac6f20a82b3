//! The simulation's own time, which no machine sees.

use std::time::Duration;

use tokio::time::Instant;

/// Counts from the beginning of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeline {
    begun: Instant,
}

impl Timeline {
    /// Time 0 is now.
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's virtual clock, on which everything here stands"
    )]
    pub(crate) fn begin() -> Self {
        let begun = Instant::now();
        Self { begun }
    }

    /// How much has passed.
    #[must_use]
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The runtime's instant at `time`.
    pub(crate) fn at(&self, time: Duration) -> Instant {
        self.begun + time
    }
}
