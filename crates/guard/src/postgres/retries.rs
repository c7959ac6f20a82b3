//! How often a transaction that met another one is tried, and how long it pauses in between.

use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::{DbError, SqlState};

use super::PostgresError;

/// How often a transaction is tried, unless
/// [`PostgresGuard::attempts`](super::PostgresGuard::attempts) says otherwise.
pub const ATTEMPTS: u32 = 64;

/// How often a transaction is tried whose lock was not to be had (`55P03`), at most. Each of these
/// attempts has waited for the server's whole `lock_timeout` already.
pub const LOCK_ATTEMPTS: u32 = 3;

/// The longest pause before the second attempt; it doubles with each further one.
pub const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The longest pause between two attempts.
pub const PAUSE_MAX: Duration = Duration::from_millis(100);

/// What was in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// Another transaction; the server gave up this one (`40001`, `40P01`).
    Transaction,
    /// A lock that was not to be had in time (`55P03`).
    Lock,
    /// An earlier transaction of this connection that failed and was not rolled back yet, since
    /// its rollback was cancelled (`25P02`).
    LeftOpen,
}

impl Conflict {
    fn of(error: &DbError) -> Option<Self> {
        let code = error.code();
        if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED
        {
            Some(Self::Transaction)
        } else if *code == SqlState::LOCK_NOT_AVAILABLE {
            Some(Self::Lock)
        } else {
            None
        }
    }
}

/// Whether the server means a conflict by this error.
pub(super) fn is_conflict(error: &DbError) -> bool {
    Conflict::of(error).is_some()
}

/// The conflict that an error stems from, however deep it is wrapped.
pub(super) fn conflict_in(error: &(dyn Error + 'static)) -> Option<Conflict> {
    let mut next = Some(error);
    while let Some(error) = next {
        let found = match error.downcast_ref::<PostgresError>() {
            Some(PostgresError::Conflict { source }) => source.as_db_error(),
            _ => error.downcast_ref::<DbError>(),
        };
        if let Some(conflict) = found.and_then(Conflict::of) {
            return Some(conflict);
        }
        next = error.source();
    }
    None
}

/// The attempts of one call.
pub(super) struct Retries {
    max: u32,
    /// Attempts that have failed.
    failed: u32,
    /// Of these, the ones that waited for a lock.
    locked: u32,
}

impl Retries {
    pub(super) const fn new(max: u32) -> Self {
        Self {
            max,
            failed: 0,
            locked: 0,
        }
    }

    /// Whether an attempt that met `conflict` is to be repeated; then it has paused.
    ///
    /// The server pauses, on the connection that has nothing else to do: so no timer is needed, of
    /// whatever executor this runs on. A pause that fails is shorter, and the next attempt says why.
    pub(super) async fn again(&mut self, client: &Client, conflict: Conflict) -> bool {
        self.failed += 1;
        if conflict == Conflict::Lock {
            self.locked += 1;
        }
        if self.failed >= self.max || self.locked >= LOCK_ATTEMPTS {
            return false;
        }
        let pause = pause(self.failed).as_secs_f64();
        client
            .batch_execute(&format!("SELECT pg_sleep({pause})"))
            .await
            .ok();
        true
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
}
