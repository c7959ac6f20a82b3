//! Refusals as gRPC statuses: `google.rpc.Status` in `grpc-status-details-bin`, with an
//! `ErrorInfo` of our domain and, where there is advice, a `RetryInfo`.

use std::collections::HashMap;

use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use super::table::{code, reason_name, reason_of_name};
use super::{ERROR_DOMAIN, Refusal, advice};

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let mut details = ErrorDetails::new();
        let metadata: HashMap<_, _> = refusal.metadata.into_iter().collect();
        details.set_error_info(reason_name(refusal.reason), ERROR_DOMAIN, metadata);
        if let Some(time) = refusal.retry_after {
            details.set_retry_info(Some(time));
        }
        Self::with_error_details(code(refusal.reason), refusal.message, details)
    }
}

impl Refusal {
    /// The refusal that a status carries. `None` if it carries none that this version knows: then,
    /// whatever its code, nothing is known of the request's fate.
    #[must_use]
    pub fn from_status(status: &Status) -> Option<Self> {
        let details = status.check_error_details().ok()?;
        let info = details.error_info()?;
        if info.domain != ERROR_DOMAIN {
            return None;
        }
        let retry_after = details.retry_info().and_then(|info| info.retry_delay);
        Some(Self {
            reason: reason_of_name(&info.reason)?,
            message: status.message().to_owned(),
            metadata: info.metadata.clone().into_iter().collect(),
            retry_after: retry_after.map(advice),
        })
    }
}
