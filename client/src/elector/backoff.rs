//! How long to wait between terms, so that a leader whose work fails at once is no hot loop.

use std::time::Duration;

use rand::Rng;

use super::timings::Timings;
use crate::transport::random;

/// The longest pause between two terms, unless the retry period is longer.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Counts short terms in a row.
#[derive(Debug)]
pub(super) struct Backoff {
    period: Duration,
    /// A term that lasted this long was none of a hot loop.
    healthy: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(timings: &Timings) -> Self {
        Self {
            period: timings.retry_period(),
            healthy: timings.lease_duration(),
            failures: 0,
        }
    }

    /// The pause after a try that failed, or after a term whose work failed within `lasted`: doubling, with jitter downwards by a fifth, so that candidates that failed
    /// together do not come back together.
    pub(super) fn after_failure(&mut self, lasted: Duration) -> Duration {
        if lasted >= self.healthy {
            self.failures = 0;
        }
        let doubled = self.period.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let pause = doubled.min(PAUSE_MAX.max(self.period));
        pause.mul_f64(random::rng().random_range(0.8..1.0))
    }

    /// The pause after a term whose work is done: others may have their turn.
    pub(super) fn after_work(&mut self) -> Duration {
        self.failures = 0;
        self.period.mul_f64(random::rng().random_range(0.8..1.0))
    }

    /// The pause after a term that was lost, or given up by request: not a failure, so only jitter.
    pub(super) fn after_term(&mut self) -> Duration {
        self.failures = 0;
        self.period.mul_f64(random::rng().random_range(0.0..0.2))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn s4_4_pauses_double_to_their_limit_and_start_again_after_a_long_term() {
        let mut pauses = Backoff::new(&Timings::default());
        for expected in [2, 4, 8, 16, 32, 60, 60] {
            let pause = pauses.after_failure(Duration::ZERO);
            assert!(pause <= seconds(expected), "{pause:?} of {expected} s");
            assert!(pause >= seconds(expected).mul_f64(0.79), "{pause:?}");
        }
        assert!(pauses.after_failure(seconds(15)) <= seconds(2));
        assert!(pauses.after_failure(seconds(1)) > seconds(2));
    }

    #[test]
    fn s1_7_a_retry_period_beyond_the_limit_is_kept() {
        let times = Timings::new(Some(seconds(600)), Some(seconds(500)), Some(seconds(300)));
        let mut pauses = Backoff::new(&times.unwrap());
        for _ in 0..4 {
            assert!(pauses.after_failure(Duration::ZERO) >= seconds(239));
        }
    }

    #[test]
    fn only_failures_make_pauses_grow() {
        let mut pauses = Backoff::new(&Timings::default());
        assert!(pauses.after_term() <= Duration::from_millis(400));
        for _ in 0..10 {
            let pause = pauses.after_work();
            assert!(pause >= seconds(1) && pause <= seconds(2), "{pause:?}");
        }
    }
}
