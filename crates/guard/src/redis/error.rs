//! What can go wrong, sorted by what the caller has to do.

use ::redis::ErrorKind;
use ringfence_core::{FencingToken, LeaseName};

use crate::{EndsBelief, Fence, Refused};

/// Why a call of [`RedisGuard`](super::RedisGuard) did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// The guard refused the fence; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The mark is no number of 19 digits: something else has written it. Nothing was written now.
    #[error(
        "the mark of lease `{name}` is damaged; delete its key and advance it to the lease's \
         newest token before writes are served"
    )]
    DamagedMark {
        /// The lease.
        name: LeaseName,
    },
    /// A change is of a key that is not in the slot of the mark; nothing was written.
    #[error(
        "the key `{key}` does not have the hash tag `{tag}` of its mark; name it `{{{tag}}}:…`, as \
         RedisGuard::key does, or make the guard with its own tag (RedisGuard::with_tag)"
    )]
    OtherTag {
        /// The key.
        key: String,
        /// The tag of the guard.
        tag: String,
    },
    /// A change names the mark itself, as its key or as an argument; nothing was written.
    #[error(
        "the key `{key}` is the mark and in no change; only RedisGuard::advance_to changes it by hand"
    )]
    MarkIsNoData {
        /// The key.
        key: String,
    },
    /// A hash tag that no key can have.
    #[error("the hash tag `{tag}` is empty or contains `}}`; a tag is what stands between braces")]
    InvalidTag {
        /// The tag.
        tag: String,
    },
    /// A write is larger than one script may be; nothing was written.
    #[error("{offered} {what}; at most {max}: split the write")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        offered: usize,
        /// How many there may be.
        max: usize,
    },
    /// The server refused: a change does not fit its key, memory is full, access is not allowed, the
    /// server is a replica. The mark and the changes before the one that failed may have been made.
    #[error("the server refused")]
    Server {
        /// What it said.
        #[source]
        source: ::redis::RedisError,
    },
    /// The connection failed or took too long, so the write may or may not have happened. Look at
    /// the data before repeating what is not harmless twice.
    #[error("the connection failed: whether it was written is not known")]
    Unknown {
        /// How it failed.
        #[source]
        source: ::redis::RedisError,
    },
}

impl RedisError {
    /// The guard's refusal, if it is one.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    /// What the script says to a call that shows `fence`.
    pub(super) fn of_script(source: ::redis::RedisError, fence: &Fence) -> Self {
        let name = fence.name.clone();
        match source.code() {
            Some("DAMAGED_MARK") => Self::DamagedMark { name },
            Some("STALE_TOKEN") => {
                let mark = source
                    .detail()
                    .and_then(|detail| detail.strip_prefix("mark=")?.get(..super::DIGITS))
                    .and_then(|digits| digits.parse().ok());
                Refused::StaleToken {
                    name,
                    offered: fence.token,
                    // The script always names the mark.
                    mark: mark.and_then(FencingToken::new).unwrap_or(fence.token),
                }
                .into()
            }
            _ => source.into(),
        }
    }
}

/// So that a client ends belief in a lease whose fence the store rejects as stale.
impl EndsBelief for RedisError {
    fn refused(&self) -> Option<&Refused> {
        Self::refused(self)
    }
}

/// So that `?` works on other commands beside the guard's.
impl From<::redis::RedisError> for RedisError {
    fn from(source: ::redis::RedisError) -> Self {
        match source.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed => {
                Self::Server { source }
            }
            _ => Self::Unknown { source },
        }
    }
}
