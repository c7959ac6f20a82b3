//! The work's heartbeat: a session is renewed only while the application shows that it moves.
//!
//! Keep-alives run on the client's own thread, so an application that is stuck keeps its leases for
//! ever. One that would rather lose them promises a sign of life.

use std::sync::Arc;
use std::time::Duration;

use crate::session::Session;
use crate::session::heartbeat_timer::HeartbeatTimer;
use crate::session::inner::SessionInner;

/// A promise to [`beat`](Self::beat) in time; [`Session::heartbeat`] makes one.
///
/// While a beat is overdue the session is not renewed, nor believed in any longer than it was: it
/// goes into jeopardy, and is lost as [`Loss::Stuck`](crate::Loss::Stuck) at the end of its window
/// unless a beat comes before. Dropping this ends the promise; several of one session all have to
/// be kept.
#[derive(Clone)]
#[must_use = "dropping a heartbeat ends the promise"]
pub struct Heartbeat {
    session: Arc<SessionInner>,
    beat: Arc<HeartbeatTimer>,
}

impl Session {
    /// Promises a [`beat`](Heartbeat::beat) at least every `limit`, counted from now. A stuck
    /// application then loses its leases at the latest `limit` and a window after its last beat.
    pub fn heartbeat(&self, limit: Duration) -> Heartbeat {
        Heartbeat::promise(Arc::clone(&self.guard.session), limit)
    }
}

impl Heartbeat {
    pub(crate) fn promise(session: Arc<SessionInner>, limit: Duration) -> Self {
        let beat = Arc::new(HeartbeatTimer::new(limit, session.transport.now()));
        session.require_heartbeat(&beat);
        Self { session, beat }
    }

    /// Shows that the work moves on. One that comes late, but before the session is lost, renews
    /// it at once.
    pub fn beat(&self) {
        let now = self.session.transport.now();
        if self.beat.beat(now) {
            self.session.renew_now(now);
            self.session.wake();
        }
    }
}

impl std::fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Heartbeat({:?})", self.beat)
    }
}
