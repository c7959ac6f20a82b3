//! The one place of this crate that reads time, for figures only: nothing is decided by it but how soon
//! what the file system refused is tried again.

use std::time::Instant;

/// Returns the present instant, to measure how long something took.
#[expect(
    clippy::disallowed_methods,
    reason = "measures sync latency for the stats, and paces what is tried again"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
