//! The clocks of one simulated machine: each with its own rate and offset.

use std::time::Duration;

/// What a machine's clocks show, as a function of the simulation's own time.
#[derive(Debug, Clone)]
pub struct MachineClock {
    /// The simulation's time at which the rate changed last.
    since: Duration,
    /// What the boot clock showed then.
    boot: Duration,
    /// Parts per million by which the clock is too fast; negative if it is too slow.
    ppm: i64,
    /// What the wall clock shows beyond the boot clock, in milliseconds.
    wall_offset_millis: i64,
}

impl MachineClock {
    /// A machine that was booted `up` ago, at the simulation's time 0, and whose wall clock shows
    /// `wall_millis` since 1970.
    #[must_use]
    pub fn new(up: Duration, wall_millis: u64) -> Self {
        Self {
            since: Duration::ZERO,
            boot: up,
            ppm: 0,
            wall_offset_millis: signed(wall_millis) - millis(up),
        }
    }

    /// Time since the machine's boot, suspend included, at the simulation's time `now`.
    #[must_use]
    pub fn boot(&self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.since);
        if self.ppm == 0 {
            return self.boot + passed;
        }
        let passed = i128::try_from(passed.as_nanos()).unwrap_or(i128::MAX);
        let shown = passed + passed * i128::from(self.ppm) / 1_000_000;
        self.boot + Duration::from_nanos(u64::try_from(shown.max(0)).unwrap_or(u64::MAX))
    }

    /// The wall clock at the simulation's time `now`, in milliseconds since 1970.
    #[must_use]
    pub fn wall_millis(&self, now: Duration) -> u64 {
        let shown = millis(self.boot(now)).saturating_add(self.wall_offset_millis);
        u64::try_from(shown).unwrap_or(0)
    }

    /// From `now` on the clock runs `ppm` parts per million too fast, or too slow: from a tenth of the
    /// true rate to ten times as fast, since no clock stands or runs back by its rate.
    pub fn set_rate(&mut self, now: Duration, ppm: i64) {
        self.boot = self.boot(now);
        self.since = now;
        self.ppm = ppm.clamp(-900_000, 9_000_000);
    }

    /// How many parts per million the clock is too fast.
    #[must_use]
    pub const fn rate(&self) -> i64 {
        self.ppm
    }

    /// Sets the wall clock forward, or back; the boot clock does not notice.
    pub fn step_wall(&mut self, millis: i64) {
        self.wall_offset_millis = self.wall_offset_millis.saturating_add(millis);
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn signed(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_change_of_rate_makes_no_jump() {
        let mut clock = MachineClock::new(secs(100), 1_000_000);
        clock.set_rate(secs(10), 10_000);
        assert_eq!(clock.boot(secs(10)), secs(110));
        assert_eq!(clock.boot(secs(110)), secs(211));
        clock.set_rate(secs(110), -10_000);
        assert_eq!(clock.boot(secs(110)), secs(211));
        assert_eq!(clock.boot(secs(210)), secs(310));
    }

    #[test]
    fn a_step_moves_the_wall_clock_alone() {
        let mut clock = MachineClock::new(secs(5), 1_000_000);
        clock.step_wall(-400_000);
        assert_eq!(clock.wall_millis(secs(0)), 600_000);
        assert_eq!(clock.boot(secs(0)), secs(5));
    }
}
