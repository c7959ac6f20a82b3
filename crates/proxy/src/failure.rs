//! Why a request that may pass has no answer of the service.

use http::StatusCode;

/// Why a request that was let in, or needs no fence, has no answer of the service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The service was not reached.
    #[error("the service is not reached, and nothing of the request was sent: {0}")]
    Unreached(String),
    /// The service ended the connection.
    #[error(
        "the service broke off, or the caller did; whether it has done the request is not known: {0}"
    )]
    Broken(String),
    /// There is no answer in time.
    #[error("the service has not answered in time; whether it has done the request is not known")]
    Late,
    /// A newer holder came.
    #[error(
        "a newer holder of the lease has come while the service worked; whether it has done the request \
         is not known"
    )]
    Cut,
    /// Another protocol was asked for.
    #[error(
        "the connection cannot be made one of another protocol: what goes over it then would be judged \
         by none"
    )]
    Upgrade,
}

impl Failure {
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Unreached(_) => "SERVICE_UNAVAILABLE",
            Self::Broken(_) | Self::Late | Self::Cut => "OUTCOME_UNKNOWN",
            Self::Upgrade => "UPGRADE_REFUSED",
        }
    }

    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Unreached(_) | Self::Broken(_) => StatusCode::BAD_GATEWAY,
            Self::Late | Self::Cut => StatusCode::GATEWAY_TIMEOUT,
            Self::Upgrade => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// The number of the gRPC status.
    pub(crate) const fn grpc_code(&self) -> u8 {
        match self {
            Self::Unreached(_) => 14,
            Self::Broken(_) | Self::Late | Self::Cut => 2,
            Self::Upgrade => 12,
        }
    }

    /// Whether the request has had no effect.
    pub(crate) const fn is_certain(&self) -> bool {
        matches!(self, Self::Unreached(_) | Self::Upgrade)
    }
}
