//! The cluster clock: the one place on the server that reads time.
//!
//! Everything that is decided is decided by cluster time, which is replicated. A leader moves it by
//! stamping each proposal with its [`Reading`], a counter that belongs to one term and runs with a
//! clock that counts suspend.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringfence_core::{ClusterTime, LEAD_MAX, Millis, StateMachine, WallTime};
use ringfence_planted::{Bug, planted};

use crate::platform::place;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// A leader's reading of cluster time within one term. It holds no clock itself.
///
/// It is one continuous counter: what it loses while nothing is applied it does not make up, and
/// it is never set to the time of an applied entry, since that would make it jump. It never goes
/// back either: where the state's lead has become shorter than what the counter is ahead by, it
/// stands still until applied time has come near enough.
///
/// What a pause of all nodes takes from a session, however long it lasts, follows from the lead
/// (see [`ringfence_core::StateMachine::lead`]), a fifth of the shortest TTL. Say that the entry with
/// a session's last acknowledged sign of life was stamped `s`, and that the pause began at a true
/// time `e` after that. The counter stood at `s + e` or less then, and at the wake it stands there
/// still, or at most one lead beyond applied time, which was not beyond the counter. So what is left
/// of the session at the wake is `TTL - e - TTL/5` or more: a session whose client keeps it alive in
/// thirds of its TTL does not end. A session that was opened a moment before, while the lead was
/// longer, is no exception: what the counter is ahead by is part of `e`.
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

    /// Cluster time when the clock shows `now`, `applied` is the cluster time of the newest applied
    /// entry, and `lead` is how far the state behind that entry lets a reading run ahead.
    pub(crate) fn read(
        &mut self,
        applied: ClusterTime,
        lead: Millis,
        now: Duration,
    ) -> ClusterTime {
        let passed = now.saturating_sub(self.looked);
        self.looked = self.looked.max(now);
        let lead = if planted(Bug::LeadIgnoresTtls) {
            LEAD_MAX
        } else {
            lead
        };
        let end = applied.after(lead).0.saturating_mul(NANOS_PER_MILLI);
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

/// Entries move cluster time at least this often while anything waits for it; more often if the
/// reading may not run ahead by twice this, see [`tick_max`].
const TICK_MAX: Duration = Duration::from_millis(500);
/// Deadlines that lie closer together than this share a tick.
pub(crate) const TICK_MIN: Duration = Duration::from_millis(10);

/// How long cluster time may stand still while anything waits for it: half of what a reading may run
/// ahead, so that an entry has the other half to be applied before the reading loses time.
pub(crate) fn tick_max(lead: Millis) -> Duration {
    let half = Duration::from_millis(lead.0 / 2);
    TICK_MAX.min(half).max(TICK_MIN)
}

/// What a leader's readings need of the applied state, without its lock.
#[derive(Debug, Default)]
pub(crate) struct AppliedTime {
    /// Cluster time of the newest applied entry.
    time: AtomicU64,
    /// How far a reading may run ahead of it. Written before `time` and read after it: a reading
    /// never takes a time together with an older lead, which might be the longer one.
    lead: AtomicU64,
}

impl AppliedTime {
    pub(crate) fn time(&self) -> ClusterTime {
        ClusterTime(self.time.load(Ordering::Acquire))
    }

    /// Cluster time, and how far a reading may run ahead of it.
    pub(crate) fn read(&self) -> (ClusterTime, Millis) {
        let time = self.time();
        (time, Millis(self.lead.load(Ordering::Acquire)))
    }

    /// Takes over the state's. Returns whether readings may run less far ahead than before, which
    /// the leader's timer has to know.
    pub(crate) fn publish(&self, machine: &StateMachine) -> bool {
        let lead = machine.lead().0;
        let before = self.lead.swap(lead, Ordering::AcqRel);
        self.time.store(machine.time().0, Ordering::Release);
        lead < before
    }
}

/// Time since boot, suspend included. It never goes back; in a simulation it is the simulated host's.
#[must_use]
pub fn since_boot() -> Duration {
    if let Some(shown) = place::ask(|place| place.since_boot()) {
        return shown;
    }
    counts_suspend()
}

#[cfg(target_os = "linux")]
fn counts_suspend() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// Both monotonic clocks count sleep here. The plain one is wall time less the time of boot: it is
/// slewed with the wall clock, and has been seen to step back by microseconds.
#[cfg(target_vendor = "apple")]
fn counts_suspend() -> Duration {
    let clock = nix::time::ClockId::from_raw(nix::libc::CLOCK_MONOTONIC_RAW);
    clock
        .now()
        .expect("every supported release has this clock")
        .into()
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
/// The latest second since 1970 that a term raises the token counter to.
pub(crate) const BELIEVABLE_UNTIL: u64 = BELIEVABLE_FROM + BELIEVABLE_SECONDS;

/// The wall clock in seconds, if it is believable enough to raise the token counter.
pub(crate) fn believable_seconds(wall: WallTime) -> Option<u64> {
    let seconds = wall.0 / 1_000;
    let believable = BELIEVABLE_FROM..=BELIEVABLE_UNTIL;
    believable.contains(&seconds).then_some(seconds)
}

#[cfg(test)]
mod pause_tests;

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
            reading.read(ClusterTime(500), LEAD_MAX, millis(9_000)),
            ClusterTime(500)
        );
        assert_eq!(
            reading.read(ClusterTime(500), LEAD_MAX, millis(9_250)),
            ClusterTime(750)
        );
    }

    #[test]
    fn a_reading_never_gets_more_than_a_second_ahead_and_does_not_make_up_for_it() {
        let mut reading = Reading::start(ClusterTime(0), millis(0));
        assert_eq!(
            reading.read(ClusterTime(0), LEAD_MAX, millis(3_600_000)),
            ClusterTime(1_000)
        );
        // The entry stamped with it is applied: the hour is gone for good.
        assert_eq!(
            reading.read(ClusterTime(1_000), LEAD_MAX, millis(3_600_000)),
            ClusterTime(1_000)
        );
        assert_eq!(
            reading.read(ClusterTime(1_000), LEAD_MAX, millis(3_600_100)),
            ClusterTime(1_100)
        );
    }

    #[test]
    fn a_suspended_cluster_stands_still_but_for_a_second() {
        let mut reading = Reading::start(ClusterTime(10_000), millis(0));
        let before = reading.read(ClusterTime(10_000), LEAD_MAX, millis(400));
        let after = reading.read(before, LEAD_MAX, millis(400) + Duration::from_secs(86_400));
        assert_eq!(after.since(before), LEAD_MAX);
    }

    #[test]
    fn a_reading_never_runs_faster_than_its_clock() {
        let mut applied = ClusterTime(0);
        let mut reading = Reading::start(applied, millis(0));
        let mut now = 0;
        for step in [1, 3, 700, 2_000, 5, 0, 999, 1_001, 60_000, 2] {
            let before = reading.read(applied, LEAD_MAX, millis(now));
            now += step;
            let after = reading.read(applied, LEAD_MAX, millis(now));
            assert!(
                after.since(before).0 <= step,
                "{step} ms of clock gave {after} after {before}"
            );
            assert!(after <= applied.after(LEAD_MAX));
            applied = after;
        }
    }

    #[test]
    fn short_sessions_make_time_move_in_short_steps() {
        let steps = [1_000, 999, 200, 20, 0].map(|lead| tick_max(Millis(lead)).as_millis());
        assert_eq!(steps, [500, 499, 100, 10, 10]);
    }

    #[test]
    fn a_lead_that_becomes_shorter_stops_a_reading_and_does_not_turn_it_back() {
        let (long, short) = (LEAD_MAX, Millis(200));
        let mut reading = Reading::start(ClusterTime(0), millis(0));
        // An `Open` with a TTL of a second, stamped 0, is applied 900 ms later; then all nodes pause.
        assert_eq!(
            reading.read(ClusterTime(0), long, millis(900)),
            ClusterTime(900)
        );
        let wake = millis(900 + 6_000);
        assert_eq!(
            reading.read(ClusterTime(0), short, wake),
            ClusterTime(900),
            "the session keeps the 100 ms that it had before the pause"
        );
        assert_eq!(
            reading.read(ClusterTime(900), short, wake + millis(150)),
            ClusterTime(1_050)
        );
        assert_eq!(
            reading.read(ClusterTime(900), short, wake + millis(400)),
            ClusterTime(1_100)
        );
    }

    #[test]
    fn steps_below_a_millisecond_are_not_lost() {
        let mut reading = Reading::start(ClusterTime(0), millis(0));
        for step in 1..=1_000 {
            let _ = reading.read(ClusterTime(0), LEAD_MAX, Duration::from_micros(step * 100));
        }
        assert_eq!(
            reading.read(ClusterTime(0), LEAD_MAX, millis(100)),
            ClusterTime(100)
        );
    }

    #[test]
    fn a_clock_that_goes_back_does_not_move_a_reading() {
        let mut reading = Reading::start(ClusterTime(0), millis(1_000));
        assert_eq!(
            reading.read(ClusterTime(0), LEAD_MAX, millis(1_200)),
            ClusterTime(200)
        );
        assert_eq!(
            reading.read(ClusterTime(0), LEAD_MAX, millis(100)),
            ClusterTime(200)
        );
        assert_eq!(
            reading.read(ClusterTime(0), LEAD_MAX, millis(1_300)),
            ClusterTime(300)
        );
    }

    #[test]
    fn only_a_believable_wall_clock_raises_tokens() {
        let at = |seconds: u64| believable_seconds(WallTime(seconds * 1_000));
        assert_eq!(at(0), None);
        assert_eq!(at(BELIEVABLE_FROM), Some(BELIEVABLE_FROM));
        assert_eq!(at(BELIEVABLE_UNTIL + 1), None);
    }
}
