//! The one place of this crate that reads time, for figures only: nothing is decided by it.

use std::time::Instant;

/// Returns the present instant, to measure how long a sync took.
#[expect(
    clippy::disallowed_methods,
    reason = "measures sync latency for the stats only"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
