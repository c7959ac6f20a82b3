//! A lease as those see it who do not own it: its work, its observers.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName, SessionId};

use crate::clock::{self, Moment};
use crate::grant::Grant;
use crate::lease::{self, HeldLease};
use crate::liveness::Liveness;
use crate::loss::Loss;
use crate::range::{Range, millis};

/// A held lease without the right to give it up. Cheap to clone; it keeps nothing open.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) grant: Arc<Grant>,
}

impl View {
    pub(crate) fn of(lease: &HeldLease) -> Self {
        Self {
            liveness: Arc::clone(&lease.hold.liveness),
            grant: Arc::clone(&lease.grant),
        }
    }

    pub(crate) fn name(&self) -> &LeaseName {
        &self.grant.name
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.grant.token
    }

    pub(crate) fn session(&self) -> SessionId {
        self.grant.session
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.liveness.valid_until()
    }

    pub(crate) fn remaining(&self) -> Duration {
        let valid_until = self.valid_until();
        match self.loss() {
            None => valid_until.saturating_since(self.liveness.hub.now()),
            Some(_) => Duration::ZERO,
        }
    }

    /// Why it is held no more.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.liveness.loss_of(&self.grant)
    }

    pub(crate) fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        lease::lost(Arc::clone(&self.liveness), Arc::clone(&self.grant))
    }

    /// See [`HeldLease::run`].
    pub(crate) async fn run<F: Future>(&self, work: F) -> Result<F::Output, Loss> {
        let mut lost = pin!(self.lost());
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(loss) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(loss));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    pub(crate) fn range(&self) -> Option<Range> {
        let remaining = self.remaining();
        let range = Range {
            start_unix_ms: self.grant.since_unix_ms,
            end_unix_ms: clock::wall_micros() / 1_000 + millis(remaining),
            failing_open: false,
        };
        self.loss().is_none().then_some(range)
    }

    /// See [`HeldLease::report_stale`].
    pub(crate) fn report_stale(&self) {
        if self.grant.end(&Loss::Reported) {
            self.liveness.drop_grant(self.grant.token);
            self.liveness.hub.unsettled.note_release(
                &self.liveness,
                &self.grant.name,
                self.grant.token,
            );
        }
    }
}
