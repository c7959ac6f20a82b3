//! Sessions: a client's liveness contract with the cluster.

use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName, SessionId};
use tokio::sync::watch;

use crate::acquire::Acquire;
use crate::clock::Moment;
use crate::error::{CloseError, ReleaseError};
use crate::handle::SessionHandle;
use crate::lease::{TransferError, Transferred};
use crate::loss::Loss;

/// What a session is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// How long the session outlives its last keep-alive, in whole milliseconds; within the
    /// cluster's bounds, normally 1 s to 5 min. 15 s by default.
    pub ttl: Duration,
    /// Who the holder is, for people; at most 255 bytes without control characters. Empty by
    /// default.
    pub identity: String,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(15), identity: String::new() }
    }
}

/// How a session stands.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionState {
    /// Its keep-alives are acknowledged.
    Live,
    /// Half of its window has passed without an acknowledgement: time to prepare for the loss.
    Jeopardy {
        /// When it will be lost, unless a keep-alive is acknowledged before.
        valid_until: Moment,
    },
    /// It is over, for ever.
    Lost {
        /// Why.
        why: Loss,
    },
}

/// A session that is kept alive by the client's own thread. Cheap to clone.
#[derive(Clone)]
#[must_use = "a session is closed when its last clone and its last lease are dropped"]
pub struct Session {}

impl Session {
    /// The session's number; public.
    #[must_use]
    pub fn id(&self) -> SessionId {
        todo!()
    }

    /// What resumes the session elsewhere; whoever has it can act for the session.
    #[must_use]
    pub fn handle(&self) -> SessionHandle {
        todo!()
    }

    /// The session's TTL.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        todo!()
    }

    /// How the session stands, now and at each change.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<SessionState> {
        todo!()
    }

    /// When everything that the session holds is lost, unless a keep-alive is acknowledged before.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        todo!()
    }

    /// Whether the session is neither lost nor closed. Asks the clock each time.
    #[must_use]
    pub fn is_live(&self) -> bool {
        todo!()
    }

    /// Begins to acquire the lease `name`.
    pub fn acquire(&self, name: impl Into<String>) -> Acquire {
        let _ = name.into();
        todo!()
    }

    /// Releases a lease by its token, for a session that was resumed from its handle. A
    /// [`HeldLease`](crate::HeldLease) is released by its own method.
    ///
    /// # Errors
    /// [`ReleaseError`]; [`CallError::Refused`](crate::CallError::Refused) inside it if this
    /// session does not hold the lease with this token.
    pub async fn release(&self, name: &LeaseName, token: FencingToken) -> Result<(), ReleaseError> {
        let _ = (name, token);
        todo!()
    }

    /// Hands a lease over by its token, for a session that was resumed from its handle; see
    /// [`HeldLease::transfer_to`](crate::HeldLease::transfer_to).
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn transfer(
        &self,
        name: &LeaseName,
        token: FencingToken,
        to: Option<SessionId>,
    ) -> Result<Transferred, TransferError> {
        let _ = (name, token, to);
        todo!()
    }

    /// Ends the session and everything that it holds. Belief ends first, then the request leaves.
    ///
    /// # Errors
    /// [`CloseError`] if it is not certain that the cluster has ended it.
    pub async fn close(self) -> Result<(), CloseError> {
        todo!()
    }

    /// Leaves the session to itself: nothing is kept alive, closed or released any more, and this
    /// process believes in none of its leases. It ends by its TTL unless somebody else keeps it
    /// alive with the handle returned.
    pub fn leave(self) -> SessionHandle {
        todo!()
    }
}
