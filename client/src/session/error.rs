//! What can go wrong with a session, one type per operation.

use crate::session::loss::Loss;
use crate::transport::error::CallError;

/// Why a session was not opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The identity is too long or has control characters.
    #[error("identity: {0}")]
    InvalidIdentity(ringfence_core::InvalidText),
    /// The client was [shut down](crate::Client::shutdown).
    #[error("this client was shut down; make another one")]
    ShutDown,
    /// The session was opened, but so late that its window had passed already.
    #[error("the session was opened, but its window had passed when the answer came")]
    TooLate,
    /// The cluster refused the request, or did not answer in time.
    #[error(transparent)]
    Call(CallError),
}

/// Why a session could not be resumed from its handle.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The client was [shut down](crate::Client::shutdown).
    #[error("this client was shut down; make another one")]
    ShutDown,
    /// The session has ended, or the handle's secret is not its secret.
    #[error("the session cannot be resumed: {0}")]
    Lost(Loss),
    /// The cluster refused the request, or did not answer in time.
    #[error(transparent)]
    Call(CallError),
}

/// Why it is not certain that a session was closed. It ends by its TTL at the latest, since
/// no client keeps it alive any more.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct CloseError(#[from] pub CallError);

/// What came of a release that did not succeed. Belief in the grant has ended in any case.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The grant had ended before.
    #[error("the lease was lost before it was released: {0}")]
    Lost(Loss),
    /// The request failed. While the session lives the client goes on asking in the background.
    #[error(transparent)]
    Call(CallError),
}
