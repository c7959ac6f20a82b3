//! What can go wrong, sorted by what the caller has to do.

use ringfence_core::LeaseName;

use crate::{EndsBelief, Refused};

/// Why a call of [`S3Guard`](super::S3Guard) did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum S3Error {
    /// The guard refused the fence; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A key that no guarded object can have; nothing was sent.
    #[error("invalid key `{key}`: {why}")]
    InvalidKey {
        /// The key.
        key: String,
        /// What is wrong with it, and what is expected.
        why: String,
    },
    /// A body is larger than a guarded object may have; nothing was written.
    #[error(
        "the body has {offered} bytes, a guarded object has at most {max}: write the data to an \
         object of its own that is never changed, and its key through the guard"
    )]
    TooLarge {
        /// The bytes of the body.
        offered: u64,
        /// [`BODY_MAX`](super::BODY_MAX).
        max: u64,
    },
    /// There is an object under this key that no guard has written; nothing was written.
    #[error(
        "the object `{key}` is not guarded: something else has written it; move it to another \
         key, and write its content through the guard"
    )]
    NotGuarded {
        /// The key.
        key: String,
    },
    /// The object is guarded by another lease; nothing was written.
    #[error("the object `{key}` is guarded by lease `{found}`, not by `{expected}`")]
    OtherLease {
        /// The key.
        key: String,
        /// The lease of the guard.
        expected: LeaseName,
        /// The lease that the object names.
        found: LeaseName,
    },
    /// The object was changed by something else than a guard; nothing was written.
    #[error(
        "the guarded object `{key}` is damaged: {why}; restore it, and advance its mark to the \
         lease's newest token before writes are served"
    )]
    Damaged {
        /// The key.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The store does not do what a guard needs: it would lose or pass over marks. Nothing was
    /// written to the guarded object.
    #[error("unfit store: {why}; use a store that honours If-Match and If-None-Match on PUT")]
    Unfit {
        /// What it does or does not do.
        why: &'static str,
    },
    /// Other writers were in the way in every attempt; nothing was written.
    #[error(
        "the object `{key}` was changed by other writers in each of {attempts} attempts; write it \
         from one process at a time, or less often"
    )]
    Contended {
        /// The key.
        key: String,
        /// How many there were.
        attempts: u32,
    },
    /// The store was not reached or refused: no such bucket, access denied. Nothing was written.
    #[error("the store failed, and nothing was written")]
    Store {
        /// What it said.
        #[source]
        source: object_store::Error,
    },
    /// The system has no random numbers, which name a write; nothing was written.
    #[error("the system has no random numbers to name a write with")]
    NoRandomNumbers,
    /// The connection failed or took too long, or the store failed, after the write may have
    /// arrived: it may have been made, or be made yet, unless another write comes before it. A
    /// write by the same guard settles it: it comes behind the unknown one, or in its place.
    #[error("the write was sent, and whether it was made is not known")]
    Unknown {
        /// How it failed.
        #[source]
        source: object_store::Error,
    },
}

impl S3Error {
    /// The guard's refusal, if it is one.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            _ => None,
        }
    }
}

/// So that a client ends belief in a lease whose fence the store rejects as stale.
impl EndsBelief for S3Error {
    fn refused(&self) -> Option<&Refused> {
        Self::refused(self)
    }
}
