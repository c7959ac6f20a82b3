//! Acquiring a lease.

use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{FencingToken, InvalidName, SessionId};

use crate::error::CallError;
use crate::lease::HeldLease;
use crate::loss::Loss;

/// An acquire in the making; [`Session::acquire`](crate::Session::acquire) begins one.
#[must_use = "nothing is acquired until send()"]
pub struct Acquire {}

/// Who holds a lease that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The session that holds it.
    pub session: Option<SessionId>,
    /// Who it says it is.
    pub identity: String,
    /// The token of its grant.
    pub token: Option<FencingToken>,
    /// Whether it is the very session that asked.
    pub mine: bool,
}

/// Why a lease is not granted to anybody now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The last holder's end was dirty and its lock-delay runs.
    LockDelay,
    /// The last grant was revoked and its holder may not know yet.
    Revoking,
    /// The cluster was restored.
    QuietTime,
}

/// Why a lease was not acquired.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AcquireError {
    /// The name is no lease name.
    #[error(transparent)]
    InvalidName(InvalidName),
    /// Somebody holds it.
    #[error("held by {:?}, token {}", .0.identity, .0.token.map_or(0, FencingToken::get))]
    Held(Holder),
    /// Nobody holds it, but others wait for it.
    #[error("{waiters} wait for the lease; wait too")]
    Queued {
        /// How many.
        waiters: u64,
    },
    /// Nobody is granted it now.
    #[error("nobody is granted the lease for another {remaining:?}: {why:?}")]
    NotNow {
        /// Why.
        why: Blocked,
        /// How much longer at most, where known.
        remaining: Option<Duration>,
    },
    /// The wait is over and brought no grant.
    #[error("not granted within the wait")]
    TimedOut,
    /// It was granted, and the grant has ended before the answer came.
    #[error("the lease was granted and lost again: {0}")]
    Ended(Loss),
    /// The session is over.
    #[error("the session is over: {0}")]
    SessionLost(Loss),
    /// The request failed otherwise. If its outcome is unknown it is being cancelled in the
    /// background.
    #[error(transparent)]
    Call(CallError),
}

impl Acquire {
    /// Waits in the queue for at most this long, in whole milliseconds up to 24 h of cluster time;
    /// without it the acquire is answered at once.
    pub fn wait(self, wait: Duration) -> Self {
        let _ = wait;
        self
    }

    /// Publishes up to 1 KiB with the grant, an address for example.
    pub fn data(self, data: impl Into<Bytes>) -> Self {
        let _ = data.into();
        self
    }

    /// For how long nobody is granted the lease if this grant ends by expiry or revoke, in whole
    /// milliseconds up to 60 s.
    pub fn lock_delay(self, delay: Duration) -> Self {
        let _ = delay;
        self
    }

    /// Sends the acquire and waits for the answer. Dropping the future cancels it: at whatever
    /// point, no grant is left behind and nobody stands in the queue for it.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub async fn send(self) -> Result<HeldLease, AcquireError> {
        todo!()
    }
}
