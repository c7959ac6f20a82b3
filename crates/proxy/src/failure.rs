//! Why a request has no answer of the service.

use http::StatusCode;
use ringfence_guard::tower::TurnedAway;

/// Why a request has no answer of the service, though its fence is not the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// It could be read as another one by the service.
    #[error("{0}")]
    Malformed(String),
    /// Another protocol was asked for.
    #[error(
        "the connection cannot be made one of another protocol: what goes over it then would be judged \
         by none; use HTTP"
    )]
    Upgrade,
    /// There are too many.
    #[error("the proxy has {0} requests under way, and takes no more of them; come again")]
    Busy(usize),
    /// The service was not reached.
    #[error("the service is not reached, and nothing of the request was sent: {0}")]
    Unreached(String),
    /// The service ended the connection.
    #[error(
        "the service broke off, or the caller did; whether the request is done is not known; look before \
         you repeat it: {0}"
    )]
    Broken(String),
    /// There is no end in time.
    #[error(
        "the request was not over in time, and its connection was severed; whether it is done is not \
         known; look before you repeat it"
    )]
    Late,
    /// A newer holder came.
    #[error(
        "a newer holder of the lease has come while the service worked, and the connection was severed; \
         whether the request is done is not known; stop: the lease is lost"
    )]
    Cut,
}

impl Failure {
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "MALFORMED_REQUEST",
            Self::Upgrade => "UPGRADE_REFUSED",
            Self::Busy(_) => "TOO_MANY_REQUESTS",
            Self::Unreached(_) => "SERVICE_UNAVAILABLE",
            Self::Broken(_) | Self::Late | Self::Cut => "OUTCOME_UNKNOWN",
        }
    }

    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Upgrade => StatusCode::NOT_IMPLEMENTED,
            Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreached(_) | Self::Broken(_) => StatusCode::BAD_GATEWAY,
            Self::Late | Self::Cut => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Whether the request has had no effect.
    pub(crate) const fn is_certain(&self) -> bool {
        match self {
            Self::Malformed(_) | Self::Upgrade | Self::Busy(_) | Self::Unreached(_) => true,
            Self::Broken(_) | Self::Late | Self::Cut => false,
        }
    }
}

/// Why the service has no part in an answer.
#[derive(Debug)]
pub(crate) enum Rejected {
    /// It is not let in.
    TurnedAway(TurnedAway),
    /// Something else.
    Failed(Failure),
}

impl From<TurnedAway> for Rejected {
    fn from(away: TurnedAway) -> Self {
        Self::TurnedAway(away)
    }
}

impl From<Failure> for Rejected {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What an error says, with its reasons.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
