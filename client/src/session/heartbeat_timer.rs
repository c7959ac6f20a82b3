//! One promise of signs of life, and when the last one came.

use std::sync::Mutex;
use std::time::Duration;

use crate::clock::Moment;
use crate::sync::lock;

/// When the last sign of life came, and how long the next one may take.
#[derive(Debug)]
pub(crate) struct HeartbeatTimer {
    limit: Duration,
    last: Mutex<Moment>,
}

impl HeartbeatTimer {
    /// The next sign is due `limit` after `now`.
    pub(crate) fn new(limit: Duration, now: Moment) -> Self {
        let last = Mutex::new(now);
        Self { limit, last }
    }

    /// A sign of life came; says whether it was late.
    pub(crate) fn beat(&self, now: Moment) -> bool {
        let mut last = lock(&self.last);
        let late = now > *last + self.limit;
        *last = now;
        late
    }

    pub(crate) fn is_overdue(&self, at: Moment) -> bool {
        at > *lock(&self.last) + self.limit
    }
}
