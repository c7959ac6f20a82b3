//! What a caller hears of a proposal: what the state machine said, or why nothing is known.

use std::fmt;
use std::time::Duration;

use ringfence_core::{ClusterTime, Outcome};

/// The answer to an applied command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// What the state machine said.
    pub outcome: Outcome,
    /// The log index of the entry.
    pub index: u64,
    /// Cluster time after the entry.
    pub time: ClusterTime,
}

/// Where the leader is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderHint {
    /// Its id in the cluster; never 0.
    pub node_id: u64,
    /// host:port for clients.
    pub client_address: String,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Certainly without effect, now and later.
    #[error("not done: {why}")]
    NotDone {
        /// The reason, for people.
        why: String,
        /// Where it may be tried, if known.
        leader: Option<LeaderHint>,
        /// When it may be tried again.
        retry_after: Option<Duration>,
    },
    /// It may have happened, or may still happen.
    #[error("outcome unknown: {why}")]
    Unknown {
        /// The reason, for people.
        why: String,
    },
    /// This node cannot work any more.
    #[error("fault: {why}")]
    Fault {
        /// The reason, for people.
        why: String,
    },
}

impl ProposeError {
    pub(crate) fn not_done(why: impl Into<String>) -> Self {
        Self::NotDone {
            why: why.into(),
            leader: None,
            retry_after: Some(RETRY_LATER),
        }
    }

    pub(crate) fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { why: why.into() }
    }
}

/// What a caller is asked to wait before it tries again.
pub(crate) const RETRY_LATER: Duration = Duration::from_millis(200);

/// A reply that is given exactly once: one that is dropped says that the outcome is unknown.
pub(crate) struct Reply<T>(Option<ReplyTo<T>>);

type ReplyTo<T> = Box<dyn FnOnce(Result<T, ProposeError>) + Send>;

impl<T> Reply<T> {
    pub(crate) fn new(reply: impl FnOnce(Result<T, ProposeError>) + Send + 'static) -> Self {
        Self(Some(Box::new(reply)))
    }

    pub(crate) fn send(mut self, result: Result<T, ProposeError>) {
        if let Some(reply) = self.0.take() {
            reply(result);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            reply(Err(ProposeError::unknown(
                "this node stopped before the answer came",
            )));
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}
