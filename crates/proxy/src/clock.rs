//! The clock of this process.

use tokio::time::Instant;

/// Now. Only waits end by it: which token is the newest one is compared without a clock.
#[allow(
    clippy::disallowed_methods,
    reason = "waits of a process end by its own clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
