//! The only clock here: it paces writes and measures how late they are. What is written, and
//! whether, does not depend on it.

use std::time::{Duration, Instant};

#[expect(
    clippy::disallowed_methods,
    reason = "paces writes to Kubernetes; decides nothing about a lease"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until then; without an instant, for ever.
pub(crate) async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep(at.saturating_duration_since(now())).await,
        None => std::future::pending().await,
    }
}

/// The `n`th wait, counted from 0, of those that double from `first` up to `most`.
pub(crate) fn backoff(n: u32, first: Duration, most: Duration) -> Duration {
    first.saturating_mul(1 << n.min(20)).min(most)
}
