//! How long ago something was, where it was noted on a clock that stands still while the machine
//! sleeps.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::platform::clock;

/// A smaller difference between the two clocks comes from reading one after the other, or from their
/// rates.
const SLEEP_MIN: Duration = Duration::from_millis(100);
/// So many sleeps are kept apart; the older ones count as one.
const SLEEPS_MAX: usize = 16;

/// Compares the clock that stands still with the one that counts sleep.
#[derive(Debug)]
pub(crate) struct Awake {
    begun: Instant,
    begun_since_boot: Duration,
    sleeps: Mutex<Sleeps>,
}

/// The sleeps. Times are from the beginning, on the clock that stands still meanwhile.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sleeps {
    /// For how long the machine has slept in all.
    slept: Duration,
    /// When each sleep was noticed, and how long it was; the newest last.
    noticed: VecDeque<(Duration, Duration)>,
}

impl Sleeps {
    /// Says how long ago something was that was `ago` on the clock that stands still, when that one
    /// shows `awake` and the other one `passed`.
    fn ago(&mut self, ago: Duration, awake: Duration, passed: Duration) -> Duration {
        let slept = passed.saturating_sub(awake);
        let newest = slept.saturating_sub(self.slept);
        if newest >= SLEEP_MIN {
            self.slept = slept;
            self.notice(awake, newest);
        }
        let was = awake.saturating_sub(ago);
        let since = self.noticed.iter().filter(|(at, _)| was <= *at);
        ago + since.map(|(_, lasted)| *lasted).sum::<Duration>()
    }

    fn notice(&mut self, at: Duration, lasted: Duration) {
        if self.noticed.len() == SLEEPS_MAX
            && let Some((_, oldest)) = self.noticed.pop_front()
            && let Some((_, next)) = self.noticed.front_mut()
        {
            // What was between the two seems longer ago than it was; never the other way round.
            *next += oldest;
        }
        self.noticed.push_back((at, lasted));
    }
}

impl Awake {
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of openraft's acknowledgements, to be compared with the one that counts sleep"
    )]
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            begun_since_boot: clock::since_boot(),
            sleeps: Mutex::default(),
        }
    }

    /// How long ago something was that was `ago` on the clock that stands still: with the sleeps that
    /// were noticed later.
    pub(crate) fn ago(&self, ago: Duration) -> Duration {
        let awake = self.begun.elapsed();
        let passed = clock::since_boot().saturating_sub(self.begun_since_boot);
        let mut sleeps = self.sleeps.lock();
        sleeps.ago(ago, awake, passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_a_sleep_was_longer_ago_by_its_length() {
        let millis = Duration::from_millis;
        let mut sleeps = Sleeps::default();
        assert_eq!(
            sleeps.ago(millis(20), millis(1_000), millis(1_030)),
            millis(20)
        );
        let hour = millis(3_600_000);
        assert_eq!(
            sleeps.ago(millis(40), millis(1_050), millis(1_050) + hour),
            millis(40) + hour
        );
        assert_eq!(
            sleeps.ago(millis(60), millis(1_070), millis(1_070) + hour),
            millis(60) + hour
        );
        assert_eq!(
            sleeps.ago(millis(5), millis(1_080), millis(1_080) + hour),
            millis(5)
        );
    }

    /// A machine that was suspended for an hour, looked at once, and suspended again for a moment.
    #[test]
    fn two_sleeps_are_both_counted() {
        let millis = Duration::from_millis;
        let mut sleeps = Sleeps::default();
        let (hour, moment) = (millis(3_600_000), millis(200));
        let first = sleeps.ago(millis(40), millis(1_050), millis(1_050) + hour);
        assert_eq!(first, millis(40) + hour);
        let second = sleeps.ago(millis(50), millis(1_060), millis(1_060) + hour + moment);
        assert_eq!(second, millis(50) + hour + moment);
        let between = sleeps.ago(millis(5), millis(1_060), millis(1_060) + hour + moment);
        assert_eq!(between, millis(5) + moment, "the first one was before it");
    }

    #[test]
    fn any_number_of_sleeps_is_counted_and_few_are_kept() {
        let second = Duration::from_secs(1);
        let mut sleeps = Sleeps::default();
        for n in 1..=100 {
            let awake = second * n;
            let ago = sleeps.ago(awake, awake, awake * 2);
            assert_eq!(ago, awake * 2, "from before the first one");
        }
        assert_eq!(sleeps.noticed.len(), SLEEPS_MAX);
    }
}
