//! The work's heartbeat: a session is renewed only while the application shows that it moves.
//!
//! Keep-alives run on the client's own thread, so an application that is stuck keeps its leases for
//! ever. One that would rather lose them promises a sign of life.

use std::sync::Arc;
use std::time::Duration;

use crate::session::Session;
use crate::session::beat::Beat;
use crate::session::liveness::Liveness;

/// A promise to [`beat`](Self::beat) in time; [`Session::heartbeat`] makes one.
///
/// While a beat is overdue the session is not renewed, nor believed in any longer than it was: it
/// goes into jeopardy, and is lost as [`Loss::Stuck`](crate::Loss::Stuck) at the end of its window
/// unless a beat comes before. Dropping this ends the promise; several of one session all have to
/// be kept.
#[derive(Clone)]
#[must_use = "dropping a heartbeat ends the promise"]
pub struct Heartbeat {
    liveness: Arc<Liveness>,
    beat: Arc<Beat>,
}

impl Session {
    /// Promises a [`beat`](Heartbeat::beat) at least every `limit`, counted from now. A stuck
    /// application then loses its leases at the latest `limit` and a window after its last beat.
    pub fn heartbeat(&self, limit: Duration) -> Heartbeat {
        Heartbeat::promise(Arc::clone(&self.hold.liveness), limit)
    }
}

impl Heartbeat {
    pub(crate) fn promise(liveness: Arc<Liveness>, limit: Duration) -> Self {
        let beat = Arc::new(Beat::new(limit, liveness.transport.now()));
        liveness.promise(&beat);
        Self { liveness, beat }
    }

    /// Shows that the work moves on. One that comes late, but before the session is lost, renews
    /// it at once.
    pub fn beat(&self) {
        let now = self.liveness.transport.now();
        if self.beat.beat(now) {
            self.liveness.hurry(now);
            self.liveness.wake();
        }
    }
}

impl std::fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Heartbeat({:?})", self.beat)
    }
}
