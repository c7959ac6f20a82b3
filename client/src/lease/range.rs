//! The wall-clock range of a lease: for writers of timestamped data.

use std::time::Duration;

/// From when to when a lease is held, by the wall clock: what is written with a time outside of it
/// is not the holder's to write.
///
/// It is only as good as wall clocks are: a clock that is set moves it. Ranges that two holders
/// received do not overlap while their clocks and the cluster's agree. Only a guard and the token
/// exclude a stale writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// When the cluster granted the lease, as it recorded it: milliseconds since the Unix epoch. It
    /// never goes back from one holder to the next.
    pub start_unix_ms: u64,
    /// When belief in it ends, unless it is renewed: milliseconds since the Unix epoch.
    pub end_unix_ms: u64,
    /// The lease is lost and this is an assumption: see
    /// [`Campaign::fail_open`](crate::Campaign::fail_open).
    pub failing_open: bool,
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
