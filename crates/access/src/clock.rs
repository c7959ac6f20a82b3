//! Wall time, by which credentials end.

use std::future::{Future, pending};
use std::time::Duration;

use tokio::time::sleep;

use crate::proven::Proven;

/// The longest sleep before the wall clock is read again: it may have been set, and a suspended
/// machine does not count its sleep.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// The wall clock, in seconds since 1970; 0 if it is set to before that.
#[must_use]
pub fn now_unix() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "issuers state the ends of credentials in wall time"
    )]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Resolves when the credential behind a proof has ended, by the wall clock; never for one without
/// an end. A stream that is served under the proof ends then.
pub fn until_expiry(proven: &Proven) -> impl Future<Output = ()> + Send + use<> {
    let ends = proven.expires_unix;
    async move {
        let Some(ends) = ends else {
            return pending().await;
        };
        loop {
            let left = ends.saturating_sub(now_unix());
            if left == 0 {
                return;
            }
            sleep(LOOK_MAX.min(Duration::from_secs(left))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::Principal;

    #[tokio::test]
    async fn a_proof_without_an_end_never_expires_and_an_old_one_at_once() {
        tokio::time::pause();
        let mut proven = Proven::of(Principal::anonymous());
        let early = tokio::time::timeout(Duration::from_secs(100_000), until_expiry(&proven));
        assert!(early.await.is_err());

        proven.expires_unix = Some(now_unix());
        until_expiry(&proven).await;
        proven.expires_unix = Some(now_unix() + 100);
        let early = tokio::time::timeout(Duration::from_secs(90), until_expiry(&proven));
        assert!(early.await.is_err(), "the wall clock decides");
    }
}
