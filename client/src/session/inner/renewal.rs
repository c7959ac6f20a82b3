//! When a session's keep-alives are due.

use std::time::Duration;

use rand::Rng;

use crate::clock::Moment;
use crate::transport::random;

/// When the next keep-alive is due.
pub(super) struct Renewal {
    pub(super) due: Moment,
    /// Keep-alives sent since the last acknowledgement.
    pub(super) unanswered: u32,
}

impl Renewal {
    /// One is due after a moment: a cluster that has more to tell each time is not asked without end.
    pub(super) fn soon(&mut self, now: Moment) {
        const PAUSE: Duration = Duration::from_millis(1);
        self.due = self.due.min(now + PAUSE);
    }
}

/// The time between keep-alives: a third of the TTL less up to a twentieth of it, so that clients
/// that started together do not stay together.
pub(super) fn interval(ttl: Duration) -> Duration {
    ttl / 3 - (ttl / 20).mul_f64(random::rng().random_range(0.0..1.0))
}
