//! How often `renewTime` is written, so that what an object shows is true.
//!
//! A reader takes a lease as expired when `renewTime` + `leaseDurationSeconds` has passed. So a held
//! lease's object has to be written again before that, however many there are and however slow the
//! API server is. As long as it can be, that is done by writing sooner; beyond, the duration that is
//! shown is longer than the TTL.

use std::time::Duration;

use ringfence_core::Millis;
use ringfence_planted::{Bug, planted};

use crate::limits::{RENEWAL_PACE, RENEWAL_PACE_MIN, RENEWALS_BUSY_MAX, RENEWALS_MAX};

/// Renewals are spread faster than they are due, in percent: after a start, when all objects were
/// written at once, all of them are written again within a third of a TTL.
const HEADROOM: u64 = 150;

/// Steps in which durations are stretched, in thousandths: a lease more or less rewrites no object.
const STEP: u64 = 250;

/// What one request counts for in the mean of how long they take.
const WEIGHT: u32 = 16;

/// How durations are shown now: of a TTL, in thousandths; 1,000 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch(u64);

impl Stretch {
    /// The TTL as it is.
    pub const NONE: Self = Self(1_000);

    /// `leaseDurationSeconds` of a lease with this TTL: at least the TTL, rounded up, from 1 to
    /// `i32::MAX`.
    #[must_use]
    pub fn seconds(self, ttl: Millis) -> i32 {
        let seconds = ttl.0.saturating_mul(self.0).div_ceil(1_000_000);
        i32::try_from(seconds).unwrap_or(i32::MAX).max(1)
    }
}

/// How many renewals are due a second, and how they are spread.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// In millionths a second: each held lease has two a TTL.
    due: u64,
    /// How long a write takes, in the mean.
    takes: Duration,
}

impl Pace {
    /// A lease with this TTL is held now, and was before with that one.
    pub(crate) fn held(&mut self, before: Option<Millis>, now: Option<Millis>) {
        if planted(Bug::RenewalsAtOnePace) {
            return;
        }
        let rate = |ttl: Option<Millis>| ttl.map_or(0, |ttl| 2_000_000_000 / ttl.0.max(1));
        self.due = (self.due + rate(now)).saturating_sub(rate(before));
    }

    /// A write has taken so long.
    pub(crate) fn took(&mut self, time: Duration) {
        self.takes = match self.takes.is_zero() {
            true => time,
            false => (self.takes * (WEIGHT - 1) + time) / WEIGHT,
        };
    }

    /// Renewals a second with headroom, in millionths.
    fn wanted(&self) -> u64 {
        self.due.saturating_mul(HEADROOM) / 100
    }

    /// From one renewal to the next.
    pub(crate) fn gap(&self) -> Duration {
        let gap = 1_000_000_000_000_000_u64.checked_div(self.wanted());
        let gap = gap.map_or(RENEWAL_PACE, Duration::from_nanos);
        gap.clamp(RENEWAL_PACE_MIN, RENEWAL_PACE)
    }

    /// Whether renewals are many: then they begin early, lest the last of them be late.
    pub(crate) fn is_busy(&self) -> bool {
        self.gap() < RENEWAL_PACE
    }

    /// Renewals under way at once.
    pub(crate) fn at_once(&self) -> usize {
        match self.is_busy() {
            true => RENEWALS_BUSY_MAX,
            false => RENEWALS_MAX,
        }
    }

    /// How durations are shown: longer than the TTL, if fewer renewals can be made than are due.
    pub(crate) fn stretch(&self) -> Stretch {
        if !self.is_busy() {
            return Stretch::NONE;
        }
        let at_once = u32::try_from(RENEWALS_BUSY_MAX).unwrap_or(u32::MAX);
        let each = RENEWAL_PACE_MIN.max(self.takes / at_once);
        // What is written a second, in millionths.
        let most = 1_000_000_000_000_000 / u64::try_from(each.as_nanos()).unwrap_or(u64::MAX);
        let needed = self.wanted().saturating_mul(1_000).div_ceil(most.max(1));
        Stretch(needed.max(1_000).div_ceil(STEP) * STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(leases: u64, ttl: u64) -> Pace {
        let mut pace = Pace::default();
        (0..leases).for_each(|_| pace.held(None, Some(Millis(ttl))));
        pace
    }

    #[test]
    fn few_leases_are_written_at_an_easy_pace_and_more_at_a_quicker_one() {
        assert_eq!(pace(0, 15_000).gap(), RENEWAL_PACE);
        assert_eq!(pace(500, 15_000).gap(), RENEWAL_PACE);
        // 2,306 leases have 307.5 renewals a second.
        let gap = pace(2_306, 15_000).gap();
        assert!(gap < Duration::from_micros(2_200), "{gap:?}");
        assert!(gap > RENEWAL_PACE_MIN, "{gap:?}");
        assert_eq!(pace(100_000, 15_000).gap(), RENEWAL_PACE_MIN);
    }

    #[test]
    fn durations_are_stretched_where_the_pace_is_not_enough() {
        let shown = |leases| pace(leases, 15_000).stretch().seconds(Millis(15_000));
        assert_eq!(shown(2_306), 15);
        assert_eq!(shown(2_500), 15);
        // 10,000 have 1,333 a second: with headroom four times what is written.
        assert_eq!(shown(10_000), 60);
        assert_eq!(pace(10_000, 15_000).stretch().seconds(Millis(1_500)), 6);
    }

    #[test]
    fn a_slow_api_server_makes_them_longer_too() {
        let mut pace = pace(2_000, 15_000);
        (0..100).for_each(|_| pace.took(Duration::from_millis(10)));
        assert_eq!(pace.stretch(), Stretch::NONE);
        // 16 at once that take 160 ms are 100 a second, and 400 are wanted.
        (0..200).for_each(|_| pace.took(Duration::from_millis(160)));
        let seconds = pace.stretch().seconds(Millis(15_000));
        assert!((60..=64).contains(&seconds), "{seconds}");
    }

    #[test]
    fn what_is_no_longer_held_counts_no_more() {
        let mut pace = pace(10_000, 15_000);
        (0..10_000).for_each(|_| pace.held(Some(Millis(15_000)), None));
        assert_eq!((pace.gap(), pace.stretch()), (RENEWAL_PACE, Stretch::NONE));
    }
}
