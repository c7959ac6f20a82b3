//! Why a request does not pass the door.

use http::StatusCode;
use ringfence_core::LeaseName;

use super::{LEASE_HEADER, TOKEN_HEADER};
use crate::{EndsBelief, Refused};

/// Why a request was answered at the door. Nothing was done for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TurnedAway {
    /// It came without a fence, and needs one.
    #[error(
        "MISSING_FENCE: this needs the fence of {}, and none came; send the headers \
         `{LEASE_HEADER}` with the lease's name and `{TOKEN_HEADER}` with the token of its grant",
        lease(expected.as_ref())
    )]
    Missing {
        /// The lease whose fence is needed; `None` if the door knows several.
        expected: Option<LeaseName>,
    },
    /// What came is no fence.
    #[error(
        "MALFORMED_FENCE: {what}; send the fence of {}: the headers `{LEASE_HEADER}` with the lease's \
         name and `{TOKEN_HEADER}` with the token of its grant, in decimal digits, each once",
        lease(expected.as_ref())
    )]
    Malformed {
        /// The lease whose fence is needed; `None` if the door knows several.
        expected: Option<LeaseName>,
        /// What is wrong with it.
        what: String,
    },
    /// The guard refused it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It cannot be said now whether it may pass. The same request may pass later.
    #[error("{message}")]
    Later {
        /// One word for machines, `UNKNOWN_TOKEN` or `UNAVAILABLE` for example.
        reason: &'static str,
        /// What is missing, and what to do.
        message: String,
    },
}

impl TurnedAway {
    /// The reason as one word for machines.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "MISSING_FENCE",
            Self::Malformed { .. } => "MALFORMED_FENCE",
            Self::Refused(refused) => refused.reason(),
            Self::Later { reason, .. } => reason,
        }
    }

    /// Whether the grant itself is over: its holder has to stop.
    #[must_use]
    pub const fn ends_the_grant(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.ends_the_grant())
    }

    /// The status of an HTTP response.
    #[must_use]
    pub const fn http_status(&self) -> StatusCode {
        match self {
            Self::Refused(Refused::StaleToken { .. }) => StatusCode::CONFLICT,
            Self::Missing { .. } | Self::Refused(Refused::MissingFence { .. }) => {
                StatusCode::PRECONDITION_REQUIRED
            }
            Self::Malformed { .. } | Self::Refused(_) => StatusCode::BAD_REQUEST,
            Self::Later { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The number of the gRPC status.
    #[must_use]
    pub const fn grpc_code(&self) -> u8 {
        match self {
            Self::Refused(Refused::StaleToken { .. }) => FAILED_PRECONDITION,
            Self::Missing { .. } | Self::Malformed { .. } | Self::Refused(_) => INVALID_ARGUMENT,
            Self::Later { .. } => UNAVAILABLE,
        }
    }

    /// Details for programs: `name`, `offered` and `current` of a stale token, in the words of the
    /// cluster's own refusals; `expected` where another lease is needed.
    #[must_use]
    pub fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Refused(Refused::StaleToken {
                name,
                offered,
                mark,
            }) => vec![
                ("name", name.to_string()),
                ("offered", offered.to_string()),
                ("current", mark.to_string()),
            ],
            Self::Refused(Refused::WrongLease { expected, offered }) => vec![
                ("expected", expected.to_string()),
                ("offered", offered.to_string()),
            ],
            Self::Refused(
                Refused::MissingFence { expected } | Refused::Malformed { expected, .. },
            ) => vec![("expected", expected.to_string())],
            Self::Missing { expected } | Self::Malformed { expected, .. } => {
                let expected = expected.iter();
                expected
                    .map(|name| ("expected", name.to_string()))
                    .collect()
            }
            Self::Refused(_) | Self::Later { .. } => vec![],
        }
    }

    pub(super) const fn is_retryable(&self) -> bool {
        matches!(self, Self::Later { .. })
    }
}

impl EndsBelief for TurnedAway {
    fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::Missing { .. } | Self::Malformed { .. } | Self::Later { .. } => None,
        }
    }
}

#[cfg(feature = "follow")]
impl From<crate::follow::FollowError> for TurnedAway {
    fn from(error: crate::follow::FollowError) -> Self {
        match error {
            crate::follow::FollowError::Refused(refused) => Self::Refused(refused),
            later => Self::Later {
                reason: later.reason(),
                message: later.to_string(),
            },
        }
    }
}

const INVALID_ARGUMENT: u8 = 3;
const FAILED_PRECONDITION: u8 = 9;
const UNAVAILABLE: u8 = 14;

fn lease(expected: Option<&LeaseName>) -> String {
    expected.map_or_else(|| "a lease".to_owned(), |name| format!("lease `{name}`"))
}
