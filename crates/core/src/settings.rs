//! What `apply` looks at besides the entry itself: replicated settings, set by a logged entry and
//! never by a node's flag, since two nodes with different flags would come to different states.

use core::fmt;

use crate::time::Millis;

/// The shortest TTL a cluster can be set to allow.
pub const TTL_MIN_FLOOR: Millis = Millis(100);
/// The longest `max-ttl` a cluster can be set to, 24 h.
pub const TTL_MAX_CEILING: Millis = Millis::from_secs(24 * 60 * 60);
/// The longest lock-delay, one minute.
pub const LOCK_DELAY_MAX: Millis = Millis::from_secs(60);
/// The longest wait for a lease, 24 h of cluster time.
pub const WAIT_MAX: Millis = Millis::from_secs(24 * 60 * 60);
/// The greatest `--token-floor`: tokens above 2^53 are not exact as JSON numbers everywhere.
pub const TOKEN_FLOOR_MAX: u64 = 1 << 52;
/// The longest quiet time a cluster can be formed or restored with, 24 h.
pub const QUIET_TIME_MAX: Millis = Millis::from_secs(24 * 60 * 60);
/// How many clusters before it a cluster remembers, the newest ones.
pub const LINEAGE_MAX: usize = 64;
/// How far a token floor lies above the last token of a backup, at least, where the clock does not:
/// the lost cluster may have granted as many since.
pub const RESTORE_TOKEN_GAP: u64 = 1 << 32;
/// How old the newest cluster time in an `Open` may be; `Open` ids are kept as long beyond their
/// session's end.
pub const OPEN_AGE_MAX: Millis = Millis::from_secs(60);
/// The most that a leader's reading of cluster time may run ahead of the newest applied entry.
pub const LEAD_MAX: Millis = Millis::from_secs(1);
/// It may not run ahead by more than this part of the shortest TTL of a living session either.
pub const LEAD_PART: u64 = 5;
/// The most requests a session may have unconfirmed.
pub const UNCONFIRMED_MAX: u64 = 256;
/// The most sessions one entry ends.
pub const ENDS_PER_ENTRY_MAX: u32 = 1_000;
/// The most grants one entry makes, and the most grants and waits it ends before it stops ending
/// further sessions.
pub const GRANTS_PER_ENTRY_MAX: u32 = 10_000;
/// The longest reason or operator name in a `Revoke`, in bytes.
pub const REASON_BYTES_MAX: usize = 255;

/// The least [`Settings::lease_api_factor`]: the TTL is the duration itself.
pub const LEASE_API_FACTOR_MIN: u32 = 1_000;
/// The greatest [`Settings::lease_api_factor`]: the TTL is twice the duration.
pub const LEASE_API_FACTOR_MAX: u32 = 2_000;

/// The replicated settings of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The shortest TTL a session may ask for; 100 ms to 1 h, 1 s unless set for tests.
    pub ttl_min: Millis,
    /// The longest TTL a session may ask for; `ttl_min` to 24 h.
    pub ttl_max: Millis,
    /// How long a name may be idle before its floor is forgotten; 1 s or more.
    pub idle_retention: Millis,
    /// The most leases and waits of one session.
    pub session_leases_max: u32,
    /// The most waiters of one lease.
    pub lease_waiters_max: u32,
    /// The most lease names the cluster remembers.
    pub leases_max: u64,
    /// The most sessions, those that ended within the last minute included.
    pub sessions_max: u64,
    /// The TTL of a grant of the Lease endpoint, in thousandths of the `leaseDurationSeconds` that
    /// its holder asks for: 1,000 to 2,000, 1,500 unless it is set. A client of Kubernetes' election
    /// goes on for longer than that duration: for a request's time-out and a pause between two tries
    /// beyond its deadline. Below [`LEVEL_OBJECTS`](crate::LEVEL_OBJECTS) it is always 1,500.
    pub lease_api_factor: u32,
}

impl Settings {
    /// What a cluster is formed with by default.
    pub const STANDARD: Self = Self {
        ttl_min: Millis::from_secs(1),
        ttl_max: Millis::from_secs(5 * 60),
        idle_retention: Millis::from_secs(24 * 60 * 60),
        session_leases_max: 4_096,
        lease_waiters_max: 100_000,
        leases_max: 10_000_000,
        sessions_max: 10_000_000,
        lease_api_factor: 1_500,
    };

    /// The TTL of a grant of the Lease endpoint whose holder asks for so many seconds.
    #[must_use]
    pub fn lease_api_ttl(&self, seconds: u32) -> Millis {
        Millis(u64::from(seconds) * u64::from(self.lease_api_factor))
    }

    /// Whether every value is in its range.
    ///
    /// # Errors
    /// [`InvalidSetting`] names the first one that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let setting = |name, offered, min, max| InvalidSetting {
            name,
            offered,
            min,
            max,
        };
        let (waiters, leases) = (self.lease_waiters_max, self.session_leases_max);
        let (factor_min, factor_max) = (LEASE_API_FACTOR_MIN, LEASE_API_FACTOR_MAX);
        let invalid = [
            setting("ttl_min", self.ttl_min.0, TTL_MIN_FLOOR.0, 3_600_000),
            setting("ttl_max", self.ttl_max.0, self.ttl_min.0, TTL_MAX_CEILING.0),
            setting("idle_retention", self.idle_retention.0, 1_000, u64::MAX),
            setting("session_leases_max", leases.into(), 1, 4_096),
            setting("lease_waiters_max", waiters.into(), 1, 100_000),
            setting("leases_max", self.leases_max, 1, 100_000_000),
            setting("sessions_max", self.sessions_max, 1, 100_000_000),
            setting(
                "lease_api_factor",
                self.lease_api_factor.into(),
                factor_min.into(),
                factor_max.into(),
            ),
        ]
        .into_iter()
        .find(|setting| setting.offered < setting.min || setting.offered > setting.max);
        invalid.map_or(Ok(()), Err)
    }
}

/// A setting outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InvalidSetting {
    /// The setting.
    pub name: &'static str,
    /// What was offered; milliseconds for times.
    pub offered: u64,
    /// The least that is allowed.
    pub min: u64,
    /// The most that is allowed.
    pub max: u64,
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            offered,
            min,
            max,
        } = self;
        write!(f, "setting {name} = {offered} is outside {min} to {max}")
    }
}

impl core::error::Error for InvalidSetting {}
