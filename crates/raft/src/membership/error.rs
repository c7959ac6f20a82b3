//! Why the members were not changed.

use openraft::errors::{ClientWriteError, RaftError};
use ringfence_core::Rejection;
use ringfence_proto::Refusal;
use ringfence_proto::raft as pb;

use crate::types::reply::ProposeError;
use crate::types::type_config::TypeConfig;

/// After how many milliseconds a change that was not done may be tried again.
pub(crate) const RETRY_AFTER_MILLIS: u64 = 50;

/// Why the members were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The request makes no sense as things stand.
    #[error("refused: {why}")]
    Refused {
        /// The reason, for people.
        why: String,
    },
    /// Its caller may not change the members. Nothing was changed.
    #[error("refused: {}", Refusal::from_rejection(.0).message)]
    Denied(Box<Rejection>),
    /// Not done, but it may be tried again.
    #[error("not done: {why}")]
    NotDone {
        /// The reason, for people.
        why: String,
    },
    /// It may have happened; look at the members, then repeat it if need be.
    #[error("outcome unknown: {why}")]
    Unknown {
        /// The reason, for people.
        why: String,
    },
}

impl MembershipError {
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self::Refused { why: why.into() }
    }

    pub(crate) fn not_done(why: impl Into<String>) -> Self {
        Self::NotDone { why: why.into() }
    }

    pub(crate) fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { why: why.into() }
    }
}

impl From<ProposeError> for MembershipError {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::NotDone { why, .. } => Self::NotDone { why },
            ProposeError::Unknown { why } | ProposeError::Fault { why } => Self::Unknown { why },
        }
    }
}

impl From<RaftError<TypeConfig, ClientWriteError<TypeConfig>>> for MembershipError {
    fn from(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> Self {
        let why = error.to_string();
        match error {
            RaftError::APIError(
                ClientWriteError::ForwardToLeader(_) | ClientWriteError::PreconditionFailed(_),
            ) => Self::NotDone { why },
            RaftError::APIError(ClientWriteError::ChangeMembershipError(_)) => {
                Self::Refused { why }
            }
            RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) | RaftError::Fatal(_) => {
                Self::Unknown { why }
            }
        }
    }
}

pub(crate) fn failure_to_pb(error: &MembershipError) -> pb::Failure {
    use pb::failure::Kind;
    let (kind, why) = match error {
        MembershipError::Refused { why } => (Kind::Refused, why.clone()),
        MembershipError::Denied(_) => (Kind::Refused, error.to_string()),
        MembershipError::NotDone { why } => (Kind::NotDone, why.clone()),
        MembershipError::Unknown { why } => (Kind::Unknown, why.clone()),
    };
    pb::Failure {
        kind: kind.into(),
        why,
        retry_after_ms: RETRY_AFTER_MILLIS,
    }
}
