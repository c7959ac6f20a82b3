//! What a simulated client's clock shows: that of its machine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{Clock, Moment, Sleep};

use crate::lock::lock;
use crate::machine::Machine;
use crate::world::World;

/// Timers of a real client's runtime stand still while its machine is suspended; its boot clock is
/// asked again after such parts of what is left.
const SLEEP: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

/// The clock of one client machine. Clones are the same clock.
#[derive(Clone)]
pub struct ClientClock {
    shared: Arc<Shared>,
}

struct Shared {
    world: World,
    machine: Machine,
    rates: Mutex<Vec<Rate>>,
    suspended: Mutex<Suspended>,
}

/// From `since` on, when the clock showed `boot`, it is `ppm` parts per million too fast.
#[derive(Clone, Copy)]
struct Rate {
    since: Duration,
    boot: Duration,
    ppm: i64,
}

/// For how long the machine has been suspended, by its boot clock.
#[derive(Default)]
struct Suspended {
    total: Duration,
    since: Option<Duration>,
}

impl ClientClock {
    pub(super) fn new(world: &World, machine: &Machine) -> Self {
        let rate = Rate {
            since: world.now(),
            boot: machine.since_boot(),
            ppm: 0,
        };
        Self {
            shared: Arc::new(Shared {
                world: world.clone(),
                machine: machine.clone(),
                rates: Mutex::new(vec![rate]),
                suspended: Mutex::default(),
            }),
        }
    }

    /// From now on it is so many parts per million too fast.
    pub(super) fn set_rate(&self, ppm: i64) {
        self.shared.machine.set_clock_rate(ppm);
        lock(&self.shared.rates).push(Rate {
            since: self.shared.world.now(),
            boot: self.shared.machine.since_boot(),
            ppm,
        });
    }

    /// The machine falls asleep, or wakes up: timers do not run meanwhile.
    pub(super) fn suspend(&self, asleep: bool) {
        let boot = self.shared.machine.since_boot();
        let mut suspended = lock(&self.shared.suspended);
        match (asleep, suspended.since) {
            (true, None) => suspended.since = Some(boot),
            (false, Some(since)) => {
                suspended.total += boot.saturating_sub(since);
                suspended.since = None;
            }
            _ => {}
        }
    }

    /// The true time at which the clock showed `moment`, or the present one if it has not yet.
    pub(super) fn true_time_of(&self, moment: Moment) -> Duration {
        let now = self.shared.world.now();
        let shown = moment.since_boot();
        let rates = lock(&self.shared.rates);
        let part = rates.iter().rev().find(|rate| rate.boot <= shown);
        let Some(rate) = part else { return now };
        let passed = (shown - rate.boot).as_nanos() * 1_000_000;
        let passed = passed / u128::try_from(1_000_000 + rate.ppm).unwrap_or(1);
        let passed = Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX));
        // Rounded up, so that no client is taken to have stopped before it did.
        rate.since
            .saturating_add(passed + Duration::from_nanos(1))
            .min(now)
    }

    fn rate(&self) -> f64 {
        let rates = lock(&self.shared.rates);
        let ppm = rates.last().map_or(0, |rate| rate.ppm);
        1.0 + ppm as f64 / 1e6
    }

    /// What runtimes measure timers by: the boot clock without suspends.
    fn monotonic(&self) -> Duration {
        let boot = self.shared.machine.since_boot();
        let suspended = lock(&self.shared.suspended);
        suspended
            .since
            .unwrap_or(boot)
            .saturating_sub(suspended.total)
    }

    async fn sleep(&self, time: Duration) {
        let until = self.monotonic() + time;
        loop {
            let left = until.saturating_sub(self.monotonic());
            if left.is_zero() {
                return;
            }
            let part = left.div_f64(self.rate()).max(Duration::from_millis(1));
            tokio::time::sleep(part).await;
        }
    }
}

impl Clock for ClientClock {
    fn now(&self) -> Moment {
        Moment::from_boot(self.shared.machine.since_boot())
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let left = moment.saturating_since(clock.now());
                if left.is_zero() {
                    return;
                }
                let part = (left / 2).clamp(SLEEP.0, SLEEP.1);
                clock.sleep(left.min(part)).await;
            }
        })
    }
}
