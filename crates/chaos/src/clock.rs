//! The clock of the history: CLOCK_BOOTTIME, which all processes of a machine share.

use std::time::Duration;

use ringfence_client::{BootClock, Clock};

/// Now, in nanoseconds since the machine was booted.
pub(crate) fn now_ns() -> u64 {
    nanos(BootClock.now().since_boot())
}

/// A duration in nanoseconds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Milliseconds between two readings, 0 if `to` is earlier.
pub(crate) fn millis_between(from: u64, to: u64) -> u64 {
    to.saturating_sub(from) / 1_000_000
}
