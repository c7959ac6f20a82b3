//! The cluster clock: the one place on the server that reads time.
//!
//! Everything that is decided is decided by cluster time, which is replicated. A leader moves it by
//! stamping each proposal with its [`Reading`], a counter that belongs to one term and runs with a
//! clock that counts suspend.

use std::time::Duration;

use ringfence_core::{ClusterTime, Millis, WallTime};
use ringfence_planted::{Bug, planted};

use crate::place;

/// How far a reading may run ahead of the newest applied entry.
pub(crate) const LEAD_MAX: Millis = Millis(1_000);

const NANOS_PER_MILLI: u64 = 1_000_000;

/// A leader's reading of cluster time within one term. It holds no clock itself.
///
/// It is one continuous counter: what it loses while nothing is applied it does not make up, and
/// it is never set to the time of an applied entry, since that would make it jump.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    /// Nanoseconds, so that many short steps lose nothing; enough for 584 years.
    counter: u64,
    /// The clock at the last look.
    looked: Duration,
}

impl Reading {
    /// A reading that starts at `applied`, the cluster time at which the term's first entry was
    /// applied, when the clock shows `now`.
    pub(crate) fn start(applied: ClusterTime, now: Duration) -> Self {
        Self {
            counter: applied.0.saturating_mul(NANOS_PER_MILLI),
            looked: now,
        }
    }

    /// Cluster time when the clock shows `now` and `applied` is the cluster time of the newest
    /// applied entry.
    pub(crate) fn read(&mut self, applied: ClusterTime, now: Duration) -> ClusterTime {
        let passed = now.saturating_sub(self.looked);
        self.looked = self.looked.max(now);
        let end = applied.after(LEAD_MAX).0.saturating_mul(NANOS_PER_MILLI);
        let mut room = end.saturating_sub(self.counter);
        if planted(Bug::ReadingUncapped) {
            room = u64::MAX;
        }
        if planted(Bug::ReadingRebased) {
            self.counter = applied.0.saturating_mul(NANOS_PER_MILLI);
            room = u64::MAX;
        }
        let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        self.counter = self.counter.saturating_add(passed.min(room));
        ClusterTime(self.counter / NANOS_PER_MILLI)
    }
}

/// Time since boot, suspend included. It never goes back.
pub(crate) fn since_boot() -> Duration {
    if let Some(shown) = place::ask(|place| place.since_boot()) {
        return shown;
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// The wall clock; zero if it shows a time before 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
pub(crate) fn wall() -> WallTime {
    if let Some(millis) = place::ask(|place| place.wall_millis()) {
        return WallTime(millis);
    }
    let now = std::time::SystemTime::now();
    let since = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    WallTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// When this program's source was young: a clock that shows less was never set. 2026-11-01.
const BELIEVABLE_FROM: u64 = 1_793_491_200;
/// A clock that shows more than twenty years later was set wrongly.
const BELIEVABLE_SECONDS: u64 = 20 * 365 * 24 * 60 * 60;

/// The wall clock in seconds, if it is believable enough to raise the token counter.
pub(crate) fn believable_seconds(wall: WallTime) -> Option<u64> {
    let seconds = wall.0 / 1_000;
    let believable = BELIEVABLE_FROM..=BELIEVABLE_FROM + BELIEVABLE_SECONDS;
    believable.contains(&seconds).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_reading_starts_at_applied_time() {
        let mut reading = Reading::start(ClusterTime(500), millis(9_000));
        assert_eq!(
            reading.read(ClusterTime(500), millis(9_000)),
            ClusterTime(500)
        );
        assert_eq!(
            reading.read(ClusterTime(500), millis(9_250)),
            ClusterTime(750)
        );
    }

    #[test]
    fn a_reading_never_gets_more_than_a_second_ahead_and_does_not_make_up_for_it() {
        let mut reading = Reading::start(ClusterTime(0), millis(0));
        assert_eq!(
            reading.read(ClusterTime(0), millis(3_600_000)),
            ClusterTime(1_000)
        );
        // The entry stamped with it is applied: the hour is gone for good.
        assert_eq!(
            reading.read(ClusterTime(1_000), millis(3_600_000)),
            ClusterTime(1_000)
        );
        assert_eq!(
            reading.read(ClusterTime(1_000), millis(3_600_100)),
            ClusterTime(1_100)
        );
    }

    #[test]
    fn a_suspended_cluster_stands_still_but_for_a_second() {
        let mut reading = Reading::start(ClusterTime(10_000), millis(0));
        let before = reading.read(ClusterTime(10_000), millis(400));
        let after = reading.read(before, millis(400) + Duration::from_secs(86_400));
        assert_eq!(after.since(before), LEAD_MAX);
    }

    #[test]
    fn a_reading_never_runs_faster_than_its_clock() {
        let mut applied = ClusterTime(0);
        let mut reading = Reading::start(applied, millis(0));
        let mut now = 0;
        for step in [1, 3, 700, 2_000, 5, 0, 999, 1_001, 60_000, 2] {
            let before = reading.read(applied, millis(now));
            now += step;
            let after = reading.read(applied, millis(now));
            assert!(
                after.since(before).0 <= step,
                "{step} ms of clock gave {after} after {before}"
            );
            assert!(after <= applied.after(LEAD_MAX));
            applied = after;
        }
    }

    #[test]
    fn steps_below_a_millisecond_are_not_lost() {
        let mut reading = Reading::start(ClusterTime(0), millis(0));
        for step in 1..=1_000 {
            let _ = reading.read(ClusterTime(0), Duration::from_micros(step * 100));
        }
        assert_eq!(reading.read(ClusterTime(0), millis(100)), ClusterTime(100));
    }

    #[test]
    fn a_clock_that_goes_back_does_not_move_a_reading() {
        let mut reading = Reading::start(ClusterTime(0), millis(1_000));
        assert_eq!(
            reading.read(ClusterTime(0), millis(1_200)),
            ClusterTime(200)
        );
        assert_eq!(reading.read(ClusterTime(0), millis(100)), ClusterTime(200));
        assert_eq!(
            reading.read(ClusterTime(0), millis(1_300)),
            ClusterTime(300)
        );
    }

    #[test]
    fn only_a_believable_wall_clock_raises_tokens() {
        let at = |seconds: u64| believable_seconds(WallTime(seconds * 1_000));
        assert_eq!(at(0), None);
        assert_eq!(at(BELIEVABLE_FROM), Some(BELIEVABLE_FROM));
        assert_eq!(at(BELIEVABLE_FROM + BELIEVABLE_SECONDS + 1), None);
    }
}
