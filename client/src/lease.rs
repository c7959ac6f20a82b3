//! A held lease: proof that can run out.

use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName, SessionId};

use crate::clock::Moment;
use crate::error::{CallError, ReleaseError};
use crate::loss::Loss;

/// A lease that this client holds, until it is released, handed over, or lost.
///
/// Dropping it releases it in the background. It says nothing about other processes' *writes*:
/// show its [`fence`](Self::fence) to a guard inside the store.
#[derive(Debug)]
#[must_use = "a lease is released when it is dropped"]
pub struct HeldLease {}

/// What a hand-over brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// The new holder.
    pub to: SessionId,
    /// The new holder's token.
    pub token: FencingToken,
}

/// What came of a hand-over that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The target does not wait for this lease, or nobody does. Nothing has changed: the lease
    /// comes back, unless it was named by its token.
    #[error("the target does not wait for this lease, or nobody does")]
    NotWaiting {
        /// The lease, still held.
        lease: Option<HeldLease>,
    },
    /// The grant had ended before.
    #[error("the lease was lost before it was handed over: {0}")]
    Lost(Loss),
    /// The request failed. If its outcome is unknown the lease is released in the background.
    #[error(transparent)]
    Call(CallError),
}

impl HeldLease {
    /// The lease's name.
    #[must_use]
    pub fn name(&self) -> &LeaseName {
        todo!()
    }

    /// The fencing token of this grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        todo!()
    }

    /// What a guard wants to see: `name#token`.
    #[must_use]
    pub fn fence(&self) -> String {
        todo!()
    }

    /// The session that holds it.
    #[must_use]
    pub fn session(&self) -> SessionId {
        todo!()
    }

    /// What was published with the grant.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        todo!()
    }

    /// When belief in this grant ends, unless a keep-alive is acknowledged before. Work must have
    /// stopped by then.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        todo!()
    }

    /// What is left until [`valid_until`](Self::valid_until); zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        todo!()
    }

    /// Whether the lease is held at this instant. Asks the clock each time; once it has said no it
    /// never says yes again.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        todo!()
    }

    /// Completes when the lease is lost, with the reason. The future asks the clock whenever it is
    /// polled, and the client's own thread wakes it, so neither a starved executor nor a suspended
    /// machine makes it miss the end.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        async { todo!() }
    }

    /// Runs `work` until it is done or the lease is lost, whichever comes first; at loss `work` is
    /// dropped. The clock is asked before `work` is polled, each time.
    ///
    /// # Errors
    /// The [`Loss`], if it came first.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Loss> {
        let _ = work;
        todo!()
    }

    /// Says that a guard refused this grant's token: the lease is lost, for ever.
    pub fn report_stale(&self) {
        todo!()
    }

    /// Gives the lease back. Belief ends at once, before the request leaves. Dropping the future
    /// does not stop the release.
    ///
    /// # Errors
    /// [`ReleaseError`] if the grant had ended before, or the outcome is not known.
    pub async fn release(self) -> Result<(), ReleaseError> {
        todo!()
    }

    /// Hands the lease to a session that waits for it, or to the head of the queue: a new token,
    /// no gap, no overlap. Belief ends at once, before the request leaves.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn transfer_to(self, to: Option<SessionId>) -> Result<Transferred, TransferError> {
        let _ = to;
        todo!()
    }

    /// Stops believing in the lease without releasing it: it lives at the cluster until its
    /// session ends or somebody releases it by the token returned.
    pub fn forget(self) -> FencingToken {
        todo!()
    }
}
