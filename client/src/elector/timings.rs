//! The three times of an election, as client-go spells them.

use std::time::Duration;

/// How much longer than the retry period the renew deadline has to be: client-go's jitter.
const JITTER_PERCENT: u32 = 120;

/// The times of an election under the names that client-go gave them; 15 s, 10 s and 2 s unless
/// set, as there.
///
/// | client-go | here |
/// |---|---|
/// | `LeaseDuration` | the session's TTL: no other client is granted the lease sooner than this after the last acknowledged keep-alive was received |
/// | `RenewDeadline` | a leader stops this long after it *sent* the last keep-alive that was acknowledged, or at the end of its window if that is sooner. Keep-alives go out every third of it |
/// | `RetryPeriod` | the first pause after a term or a try that failed. No candidate polls: a candidate stands in the cluster's queue and is granted the lease by the very entry that ends the grant before |
///
/// Where client-go needs skewed clocks to be bounded by the ratio of the first two, here clocks may
/// show any time at all; only their *rates* matter, and 1 % is allowed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Why three times do not make an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTimings {
    /// The leader would go on longer than its lease.
    #[error("lease duration {lease:?} must be longer than renew deadline {renew:?}")]
    LeaseTooShort {
        /// The lease duration that was offered.
        lease: Duration,
        /// The renew deadline that was offered.
        renew: Duration,
    },
    /// The leader would have no second try.
    #[error("renew deadline {renew:?} must be longer than 1.2 times the retry period {retry:?}")]
    DeadlineTooShort {
        /// The renew deadline that was offered.
        renew: Duration,
        /// The retry period that was offered.
        retry: Duration,
    },
    /// A pause of nothing makes a hot loop.
    #[error("the retry period must be at least 1 ms")]
    NoPause,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Timings {
    /// Three times, each the default where absent.
    ///
    /// # Errors
    /// [`InvalidTimings`] unless `lease_duration > renew_deadline > 1.2 · retry_period ≥ 1.2 ms`,
    /// the rules of client-go. What TTLs the cluster takes is the cluster's to say, normally 1 s to
    /// 5 min.
    pub fn new(
        lease_duration: Option<Duration>,
        renew_deadline: Option<Duration>,
        retry_period: Option<Duration>,
    ) -> Result<Self, InvalidTimings> {
        let default = Self::default();
        let lease = lease_duration.unwrap_or(default.lease_duration);
        let renew = renew_deadline.unwrap_or(default.renew_deadline);
        let retry = retry_period.unwrap_or(default.retry_period);
        if lease <= renew {
            return Err(InvalidTimings::LeaseTooShort { lease, renew });
        }
        if renew <= retry.saturating_mul(JITTER_PERCENT) / 100 {
            return Err(InvalidTimings::DeadlineTooShort { renew, retry });
        }
        if retry < Duration::from_millis(1) {
            return Err(InvalidTimings::NoPause);
        }
        Ok(Self {
            lease_duration: lease,
            renew_deadline: renew,
            retry_period: retry,
        })
    }

    /// The session's TTL, 15 s unless set.
    #[must_use]
    pub fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// After which time without an acknowledgement a leader stops.
    #[must_use]
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// The first pause after a failure.
    #[must_use]
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn s2_1_and_s3_3_what_is_not_set_is_as_client_go_has_it() {
        let times = Timings::new(None, None, None).unwrap();
        assert_eq!(times, Timings::default());
        assert_eq!(times.lease_duration(), Duration::from_secs(15));
        assert_eq!(times.renew_deadline(), Duration::from_secs(10));
        assert_eq!(times.retry_period(), Duration::from_secs(2));
        assert_eq!(
            Timings::new(seconds(60), None, None)
                .unwrap()
                .renew_deadline(),
            times.renew_deadline()
        );
    }

    #[test]
    fn s1_7_times_that_make_no_election_are_refused_with_what_was_offered() {
        let refused =
            |lease, renew, retry| Timings::new(lease, renew, retry).unwrap_err().to_string();
        assert_eq!(
            refused(seconds(10), seconds(10), None),
            "lease duration 10s must be longer than renew deadline 10s"
        );
        assert_eq!(
            refused(None, seconds(12), seconds(10)),
            "renew deadline 12s must be longer than 1.2 times the retry period 10s"
        );
        assert_eq!(
            refused(None, None, seconds(0)),
            "the retry period must be at least 1 ms"
        );
    }
}
