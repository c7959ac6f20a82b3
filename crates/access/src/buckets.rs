//! Rates of many callers in memory that does not grow.
//!
//! Each caller has a bucket that holds `burst` and refills `per_second`. Of a bucket one number is
//! kept: the time at which it is full again. One that is full is as one that was never used, so it
//! makes room first, and then the one that is full soonest: a flood of new callers displaces those
//! that did little, and not those that are refused.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// Callers that share a row of the table; a row is all that one look-up reads.
const ROW: usize = 8;

/// How fast a bucket refills, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// What comes in within a second; 1 or more.
    pub per_second: u64,
    /// The most that a caller may take at once; 1 or more.
    pub burst: u64,
}

impl Rate {
    /// How long it takes until so much has come in, rounded up.
    fn time_for(self, amount: u64) -> u64 {
        let nanos = u128::from(amount) * NANOS_PER_SECOND;
        let time = nanos.div_ceil(u128::from(self.per_second.max(1)));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// How much comes in within this time, in nanoseconds, rounded down.
    fn amount_in(self, time: u64) -> u64 {
        let amount = u128::from(time) * u128::from(self.per_second.max(1)) / NANOS_PER_SECOND;
        u64::try_from(amount).unwrap_or(u64::MAX)
    }

    fn burst_time(self) -> u64 {
        self.time_for(self.burst.max(1))
    }
}

/// A caller's bucket has not enough. It will after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// From now on.
    pub retry_after: Duration,
}

/// A bucket for each of the newest callers, at most as many as there are places. Times are measured
/// from a beginning of the owner's choice.
pub struct Buckets {
    rate: Rate,
    /// Random, so that no caller can choose whom it displaces.
    keys: RandomState,
    rows: Box<[Mutex<[Bucket; ROW]>]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// The caller's hash. Two callers with the same share a bucket, one pair in 2^64.
    key: u64,
    /// When it is full again, in nanoseconds.
    full_at: u64,
}

impl Buckets {
    /// Buckets of so many callers, rounded up to a power of two. All of their memory, about 17 bytes
    /// for each, is taken at once.
    #[must_use]
    pub fn new(rate: Rate, callers: usize) -> Self {
        let rows = callers.div_ceil(ROW).next_power_of_two();
        Self {
            rate,
            keys: RandomState::new(),
            rows: (0..rows).map(|_| Mutex::default()).collect(),
        }
    }

    /// Their rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes so much from a caller's bucket, or nothing if that is not in it.
    ///
    /// # Errors
    /// [`Exceeded`] with the time until there is enough; more than a burst is never in it.
    pub fn take(&self, caller: &impl Hash, amount: u64, now: Duration) -> Result<(), Exceeded> {
        let (now, takes) = (nanos(now), self.rate.time_for(amount));
        self.with(caller, now, |bucket| {
            let full_at = bucket.full_at.max(now).saturating_add(takes);
            match full_at.checked_sub(now.saturating_add(self.rate.burst_time())) {
                None | Some(0) => {
                    bucket.full_at = full_at;
                    Ok(())
                }
                Some(early) => Err(Exceeded {
                    retry_after: Duration::from_nanos(early),
                }),
            }
        })
    }

    /// Takes so much from a caller's bucket, or as much as is in it; how much that was.
    pub fn take_some(&self, caller: &impl Hash, most: u64, now: Duration) -> u64 {
        let now = nanos(now);
        self.with(caller, now, |bucket| {
            let full_at = bucket.full_at.max(now);
            let left = now
                .saturating_add(self.rate.burst_time())
                .saturating_sub(full_at);
            let taken = self.rate.amount_in(left).min(most);
            bucket.full_at = full_at.saturating_add(self.rate.time_for(taken));
            taken
        })
    }

    /// Puts back so much of what a caller has taken.
    pub fn give_back(&self, caller: &impl Hash, amount: u64, now: Duration) {
        let time = self.rate.time_for(amount);
        self.with(caller, nanos(now), |bucket| {
            bucket.full_at = bucket.full_at.saturating_sub(time);
        });
    }

    /// Takes so much from a caller's bucket whether it is in it or not; it may owe one burst.
    pub fn charge(&self, caller: &impl Hash, amount: u64, now: Duration) {
        let (now, takes) = (nanos(now), self.rate.time_for(amount));
        let most = now.saturating_add(self.rate.burst_time().saturating_mul(2));
        self.with(caller, now, |bucket| {
            bucket.full_at = bucket.full_at.max(now).saturating_add(takes).min(most);
        });
    }

    /// Whether there is anything in a caller's bucket. Nothing is taken.
    ///
    /// # Errors
    /// [`Exceeded`] with the time until there is.
    pub fn look(&self, caller: &impl Hash, now: Duration) -> Result<(), Exceeded> {
        let (key, row) = self.row(caller);
        let now = nanos(now);
        let row = row.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = row.iter().find(|bucket| bucket.key == key);
        let full_at = full_at.map_or(0, |bucket| self.believable(bucket.full_at, now));
        let next = full_at.saturating_add(self.rate.time_for(1));
        match next.checked_sub(now.saturating_add(self.rate.burst_time())) {
            None | Some(0) => Ok(()),
            Some(early) => Err(Exceeded {
                retry_after: Duration::from_nanos(early),
            }),
        }
    }

    /// How many callers have a bucket that is not full. It looks at all of them.
    #[must_use]
    pub fn used(&self, now: Duration) -> usize {
        let now = nanos(now);
        let rows = self.rows.iter();
        let used = rows.map(|row| {
            let row = row.lock().unwrap_or_else(PoisonError::into_inner);
            row.iter().filter(|bucket| bucket.full_at > now).count()
        });
        used.sum()
    }

    /// A bucket is full two bursts from now at the latest, unless the clock was set back.
    fn believable(&self, full_at: u64, now: u64) -> u64 {
        full_at.min(now.saturating_add(self.rate.burst_time().saturating_mul(2)))
    }

    fn row(&self, caller: &impl Hash) -> (u64, &Mutex<[Bucket; ROW]>) {
        let hash = self.keys.hash_one(caller);
        // The low bits choose the row; a row's callers differ in the rest.
        let at = usize::try_from(hash).unwrap_or(usize::MAX) & (self.rows.len() - 1);
        (hash, &self.rows[at])
    }

    fn with<R>(&self, caller: &impl Hash, now: u64, change: impl FnOnce(&mut Bucket) -> R) -> R {
        let (key, row) = self.row(caller);
        let mut row = row.lock().unwrap_or_else(PoisonError::into_inner);
        let at = row.iter().position(|bucket| bucket.key == key);
        let at = at.unwrap_or_else(|| {
            let soonest = row
                .iter()
                .enumerate()
                .min_by_key(|(_, bucket)| bucket.full_at);
            let at = soonest.map_or(0, |(at, _)| at);
            row[at] = Bucket { key, full_at: 0 };
            at
        });
        let bucket = &mut row[at];
        bucket.full_at = self.believable(bucket.full_at, now);
        change(bucket)
    }
}

impl std::fmt::Debug for Buckets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buckets")
            .field("rate", &self.rate)
            .field("callers", &(self.rows.len() * ROW))
            .finish_non_exhaustive()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        per_second: 10,
        burst: 100,
    };
    const NOW: Duration = Duration::from_secs(1_000);

    fn taken(buckets: &Buckets, caller: &str, now: Duration) -> usize {
        let taken = (0..1_000).take_while(|_| buckets.take(&caller, 1, now).is_ok());
        taken.count()
    }

    #[test]
    fn a_burst_is_there_at_once_and_then_the_rate() {
        let buckets = Buckets::new(RATE, 64);
        assert_eq!(taken(&buckets, "a", NOW), 100);
        assert_eq!(taken(&buckets, "b", NOW), 100, "each has its own");
        let later = NOW + Duration::from_secs(2);
        assert_eq!(taken(&buckets, "a", later), 20);
        let refused = buckets.take(&"a", 1, later).unwrap_err();
        assert_eq!(refused.retry_after, Duration::from_millis(100));
        assert!(buckets.look(&"a", later).is_err());
        assert!(buckets.look(&"a", later + refused.retry_after).is_ok());
        assert_eq!(taken(&buckets, "a", later + Duration::from_secs(900)), 100);
    }

    #[test]
    fn what_is_charged_beyond_a_burst_is_owed_for_one_burst_at_most() {
        let buckets = Buckets::new(RATE, 64);
        buckets.charge(&"a", 1_000_000, NOW);
        assert!(buckets.look(&"a", NOW + Duration::from_secs(9)).is_err());
        assert!(buckets.look(&"a", NOW + Duration::from_secs(11)).is_ok());
    }

    #[test]
    fn whoever_takes_what_there_is_gets_the_burst_and_then_the_rate() {
        let buckets = Buckets::new(RATE, 64);
        assert_eq!(buckets.take_some(&"a", 30, NOW), 30);
        assert_eq!(buckets.take_some(&"a", 1_000, NOW), 70);
        assert_eq!(buckets.take_some(&"a", 1_000, NOW), 0);
        assert_eq!(buckets.take_some(&"b", 1_000, NOW), 100, "each has its own");
        buckets.give_back(&"a", 25, NOW);
        assert_eq!(buckets.take_some(&"a", 1_000, NOW), 25);
        let later = NOW + Duration::from_millis(250);
        assert_eq!(buckets.take_some(&"a", 1_000, later), 2);
        buckets.give_back(&"a", 1_000_000, later);
        assert_eq!(
            buckets.take_some(&"a", 1_000, later),
            100,
            "a burst at most"
        );
        assert_eq!(buckets.take_some(&"a", 0, later), 0);
    }

    #[test]
    fn a_clock_that_is_set_back_locks_no_caller_out() {
        let buckets = Buckets::new(RATE, 64);
        assert_eq!(taken(&buckets, "a", NOW), 100);
        let back = Duration::from_secs(10);
        assert!(buckets.take(&"a", 1, back).is_err());
        assert!(
            buckets
                .take(&"a", 1, back + Duration::from_secs(21))
                .is_ok()
        );
    }

    #[test]
    fn attack_a_million_callers_neither_grow_the_table_nor_free_the_one_that_is_refused() {
        let buckets = Buckets::new(RATE, 65_536);
        let memory = buckets.rows.len() * size_of::<Mutex<[Bucket; ROW]>>();
        assert!(memory <= 2 << 20, "{memory} bytes");
        assert_eq!(taken(&buckets, "refused", NOW), 100);
        for n in 0..1_000_000_u32 {
            // A fifth of a million in a second: each is full again after a tenth of one.
            let now = NOW + Duration::from_micros(5 * u64::from(n));
            buckets.charge(&n, 1, now);
        }
        let now = NOW + Duration::from_secs(5);
        assert!(buckets.used(now) <= 65_536);
        assert_eq!(
            taken(&buckets, "refused", now),
            50,
            "five seconds of its rate"
        );
    }

    #[test]
    fn a_rate_of_bytes_is_exact_enough() {
        let rate = Rate {
            per_second: 64 << 20,
            burst: 64 << 20,
        };
        let buckets = Buckets::new(rate, 8);
        buckets.charge(&"a", 64 << 20, NOW);
        assert!(buckets.look(&"a", NOW).is_err());
        buckets.look(&"a", NOW + Duration::from_millis(1)).unwrap();
    }
}
