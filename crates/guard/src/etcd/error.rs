//! What can go wrong, sorted by what the caller has to do.

use ringfence_core::LeaseName;
use tonic::{Code, Status};

use super::MARK_PREFIX;
use crate::mark_text::Unreadable;
use crate::{EndsBelief, Refused};

/// Why a call of [`EtcdGuard`](super::EtcdGuard) did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// The guard refused the fence; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Something else has written the key of the mark. Nothing was written now.
    #[error(
        "the mark of lease `{name}` is damaged: {why}; raise it with advance_to to the lease's newest \
         token before writes are served"
    )]
    DamagedMark {
        /// The lease.
        name: LeaseName,
        /// What is wrong with the value.
        why: &'static str,
    },
    /// The mark has a version that this release does not know; nothing was written.
    #[error("the mark of lease `{name}` has version `{found}`, expected 1: use a newer release")]
    OtherVersion {
        /// The lease.
        name: LeaseName,
        /// The version, at most 19 characters of it.
        found: String,
    },
    /// The key of the mark holds the mark of another lease; nothing was written.
    #[error("the mark under the key of lease `{expected}` is of lease `{found}`: it was copied")]
    OtherLease {
        /// The lease of the guard.
        expected: LeaseName,
        /// The lease that the mark names.
        found: LeaseName,
    },
    /// An operation writes or deletes a mark, or may delete one; nothing was sent.
    #[error(
        "an operation would change marks, the keys that begin with `{MARK_PREFIX}`; only guards change them"
    )]
    MarkIsNoData,
    /// A transaction is larger than etcd carries out; nothing was sent.
    #[error("{offered} {what}, at most {max}: split the write")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        offered: usize,
        /// How many there may be.
        max: usize,
    },
    /// A token with characters that no header has.
    #[error("invalid token of etcd: expected visible ASCII characters")]
    InvalidToken,
    /// Other holders moved the mark in every attempt; nothing was written.
    #[error("the mark of lease `{name}` moved in each of {attempts} attempts")]
    Contended {
        /// The lease.
        name: LeaseName,
        /// How many there were.
        attempts: u32,
    },
    /// etcd refused before it did anything: not allowed, not authenticated, no such lease of etcd,
    /// an invalid request. Nothing was written.
    #[error("etcd refused, and nothing was written")]
    Server {
        /// What it said.
        #[source]
        source: Status,
    },
    /// The connection failed or took too long, or etcd gave up on the way, so the write may or may not
    /// have happened. Look at the data before repeating what is not harmless twice.
    #[error("the call failed: whether it was written is not known")]
    Unknown {
        /// How it failed.
        #[source]
        source: Status,
    },
}

impl EtcdError {
    /// The guard's refusal, if it is one.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    pub(super) fn unreadable(name: &LeaseName, why: Unreadable) -> Self {
        let name = name.clone();
        match why {
            Unreadable::Damaged(why) => Self::DamagedMark { name, why },
            Unreadable::OtherVersion(found) => Self::OtherVersion { name, found },
            Unreadable::OtherLease(found) => Self::OtherLease {
                expected: name,
                found,
            },
        }
    }

    /// An answer that no etcd gives.
    pub(super) fn garbled() -> Self {
        Status::internal("the answer does not fit the transaction").into()
    }
}

/// So that a client ends belief in a lease whose fence the store rejects as stale.
impl EndsBelief for EtcdError {
    fn refused(&self) -> Option<&Refused> {
        Self::refused(self)
    }
}

/// Only what etcd says before a transaction begins means that nothing was written. `RESOURCE_EXHAUSTED`
/// is not among it: a transaction that fills the database is carried out, and answered with it.
impl From<Status> for EtcdError {
    fn from(source: Status) -> Self {
        match source.code() {
            Code::InvalidArgument
            | Code::NotFound
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Unimplemented => Self::Server { source },
            _ => Self::Unknown { source },
        }
    }
}
