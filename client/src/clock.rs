//! The client's clock: the one place in this crate that reads time.
//!
//! It counts while the machine is suspended (CLOCK_BOOTTIME on Linux, its like elsewhere), since a
//! laptop that slept for an hour must not believe what it knew before.

use std::fmt;
use std::ops::Add;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A reading of the client's clock: time since the machine was booted, suspend included. It has
/// nothing to do with the wall clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after boot.
    #[must_use]
    pub const fn from_boot(since: Duration) -> Self {
        Self(since)
    }

    /// The time since boot.
    #[must_use]
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// The moment that much later; at the end of time it stays there.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", self.0)
    }
}

/// The future of [`Clock::sleep_until`]; boxed, so that a `dyn Clock` can return it.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of time. Programs have no reason for another one than [`BootClock`]; tests step theirs.
pub trait Clock: Send + Sync + 'static {
    /// The present moment; never earlier than one returned before.
    fn now(&self) -> Moment;

    /// Completes at `moment` or soon after, also if the machine was suspended meanwhile. Called on
    /// the client's own thread, within its runtime.
    fn sleep_until(&self, moment: Moment) -> Sleep;
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// On Apple's systems both monotonic clocks count sleep. The plain one is wall time less the time of
/// boot: it is slewed with the wall clock, and has been seen to step back by microseconds.
#[cfg(target_vendor = "apple")]
fn since_boot() -> Duration {
    let clock = nix::time::ClockId::from_raw(nix::libc::CLOCK_MONOTONIC_RAW);
    clock
        .now()
        .expect("every supported release has this clock")
        .into()
}

/// On Windows the interrupt time counts sleep and hibernation, the unbiased one does not. The plain
/// reading is up to a tick old, 16 ms, by which a lease would be believed too long: hence the precise
/// one.
#[cfg(windows)]
#[allow(unsafe_code)]
fn since_boot() -> Duration {
    let mut ticks = 0;
    // SAFETY: the call writes one integer to the address, which is that of a live one.
    unsafe {
        windows_sys::Win32::System::WindowsProgramming::QueryInterruptTimePrecise(&raw mut ticks);
    }
    /// One is 100 ns.
    const TICKS_PER_SECOND: u64 = 10_000_000;
    let nanos = u32::try_from(ticks % TICKS_PER_SECOND * 100).unwrap_or(0);
    Duration::new(ticks / TICKS_PER_SECOND, nanos)
}

#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_vendor = "apple",
    windows
)))]
compile_error!("no clock is known here that counts while the machine is suspended");

/// Timers of the runtime stand still while the machine is suspended, so the clock itself is asked
/// again after at most a part of the time that is left: at least this long, since an idle client
/// should not keep a machine awake, …
const SLEEP_MIN: Duration = Duration::from_millis(100);
/// … and at most this long, which is how late a sleeper can be that the machine overslept. A task
/// that asks whether a lease is held asks the clock, and is not late.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// The machine's clock that counts suspend.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        Moment(since_boot())
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let clock = *self;
        Box::pin(async move {
            loop {
                let left = moment.saturating_since(clock.now());
                if left.is_zero() {
                    return;
                }
                let part = (left / 2).clamp(SLEEP_MIN, SLEEP_MAX);
                tokio::time::sleep(left.min(part)).await;
            }
        })
    }
}

/// The wall clock in microseconds since the Unix epoch. It decides nothing: it is where the request
/// numbers of a resumed session begin.
#[expect(
    clippy::disallowed_methods,
    reason = "the client's one place that reads time"
)]
pub(crate) fn wall_micros() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}
