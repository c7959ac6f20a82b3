//! How often a transaction that met another one is tried, and how long it pauses in between.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// How often a transaction is tried, unless the guard's `attempts` says otherwise.
pub const ATTEMPTS: u32 = 64;

/// How often a transaction is tried whose lock was not to be had in time, at most. Each of these
/// attempts has waited for the server's whole lock timeout already.
#[cfg_attr(
    not(any(feature = "postgres", feature = "mysql")),
    expect(unreachable_pub, reason = "objects have no locks")
)]
pub const LOCK_ATTEMPTS: u32 = 3;

/// The longest pause before the second attempt; it doubles with each further one.
pub const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The longest pause between two attempts.
pub const PAUSE_MAX: Duration = Duration::from_millis(100);

/// What was in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// Another transaction; the server gave up this one.
    Transaction,
    /// A lock that was not to be had in time.
    Lock,
    /// An earlier transaction of this connection that failed and was not rolled back yet, since
    /// its rollback was cancelled.
    #[cfg(feature = "postgres")]
    LeftOpen,
}

/// The attempts of one call.
pub(crate) struct Retries {
    max: u32,
    /// Attempts that have failed.
    failed: u32,
    /// Of these, the ones that waited for a lock.
    locked: u32,
}

impl Retries {
    pub(crate) const fn new(max: u32) -> Self {
        Self {
            max,
            failed: 0,
            locked: 0,
        }
    }

    /// How long to pause before an attempt that met `conflict` is repeated; `None`: it is not.
    pub(crate) fn pause_after(&mut self, conflict: Conflict) -> Option<Duration> {
        self.failed += 1;
        if conflict == Conflict::Lock {
            self.locked += 1;
        }
        if self.failed >= self.max || self.locked >= LOCK_ATTEMPTS {
            return None;
        }
        Some(pause(self.failed))
    }
}

/// Half of the doubled pause, and of the other half a random part, so that those who met do not
/// meet again.
fn pause(failed: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failed.saturating_sub(1));
    let longest = PAUSE_MIN.saturating_mul(doubled).min(PAUSE_MAX);
    // The keys of a new hasher are random; that is enough for this.
    let random = RandomState::new().hash_one(failed) >> 32;
    let part = f64::from(u32::try_from(random).unwrap_or(u32::MAX)) / f64::from(u32::MAX);
    longest.mul_f64(0.5 + 0.5 * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_and_vary() {
        for failed in 1..100 {
            let longest = PAUSE_MIN * 2_u32.pow(failed.min(20) - 1);
            let pause = pause(failed);
            assert!(pause <= longest.min(PAUSE_MAX), "{failed}: {pause:?}");
            assert!(pause >= longest.min(PAUSE_MAX) / 2, "{failed}: {pause:?}");
        }
        let first = pause(50);
        assert!((0..100).any(|_| pause(50) != first), "no jitter");
    }

    #[test]
    fn a_lock_is_waited_for_less_often_than_a_transaction() {
        let count = |conflict| {
            let mut retries = Retries::new(10);
            let mut attempts = 1;
            while retries.pause_after(conflict).is_some() {
                attempts += 1;
            }
            attempts
        };
        assert_eq!(count(Conflict::Transaction), 10);
        assert_eq!(count(Conflict::Lock), LOCK_ATTEMPTS);
    }
}
