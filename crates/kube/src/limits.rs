//! What the mirror may do at most.

use std::time::Duration;

/// Requests about objects under way at once.
pub const REQUESTS_MAX: usize = 32;
/// Of these, at most so many that only move a `renewTime`, as long as 100 a second are enough.
pub const RENEWALS_MAX: usize = 4;
/// The same with more of them: half of all requests, so that grants are as quick as ever.
pub const RENEWALS_BUSY_MAX: usize = 16;
/// Between two such renewals, at most.
pub const RENEWAL_PACE: Duration = Duration::from_millis(10);
/// Between two such renewals, at least: 500 a second, what the nodes of a Kubernetes of 5,000 write.
/// Where that is not enough, from some 2,500 held leases with a TTL of 15 s on, objects show a longer
/// `leaseDurationSeconds` than the TTL.
pub const RENEWAL_PACE_MIN: Duration = Duration::from_millis(2);
/// Between two writes of one object; what happens meanwhile is written as one.
pub const OBJECT_PACE: Duration = Duration::from_millis(20);
/// How long one request may take; then its outcome is unknown, and the object is read again.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// How long an event about what was undone may take; the mirror does not wait longer for it.
pub const EVENT_TIME_MAX: Duration = Duration::from_secs(1);
/// The first pause when the API server does not answer; each is twice the one before.
pub const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause when the API server does not answer.
pub const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The first wait for an object that was meddled with again, or whose write was refused.
pub const STRIKE_MIN: Duration = Duration::from_millis(500);
/// The longest such wait.
pub const STRIKE_MAX: Duration = Duration::from_secs(30);
/// After so long without one, strikes are forgotten.
pub const STRIKES_KEPT: Duration = Duration::from_secs(60);
/// How many changed leases are noted one by one; beyond that, all are looked at.
pub const DIRTY_MAX: usize = 65_536;
/// How many names that Kubernetes cannot carry are reported and counted one by one.
pub const UNFIT_MAX: usize = 1_000;
/// Objects per page when all are listed.
pub const PAGE_OBJECTS: u32 = 500;
/// How soon the floors are asked for again after the API server has refused to show them.
pub const FLOORS_AGAIN: Duration = Duration::from_secs(30);
/// For how long the API server is asked to keep a watch open, in seconds.
pub const WATCH_SECONDS: u32 = 60;
/// A watch that has not even ended on its own by then is dead.
pub const WATCH_SILENCE_MAX: Duration = Duration::from_secs(75);
