//! Refusals for callers that speak JSON: `application/problem+json` (RFC 9457), with the reason of
//! the one table.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use ringfence_proto::Refusal;
use ringfence_proto::refusal::{http_status, reason_name};
use ringfence_proto::v1::Reason;
use serde_json::{Map, Value, json};
use tonic::Status;
use tonic::body::Body;

/// The media type of a refusal.
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The member `outcome` of a refusal: this try has no effect and will have none.
pub const NOT_DONE: &str = "not_done";
/// The same: it may have taken effect, or may still.
pub const UNKNOWN: &str = "unknown";

/// Whether a request with these headers speaks gRPC; all others speak JSON.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// The response to a request with these headers that is refused before any service sees it.
#[must_use]
pub fn refused(headers: &HeaderMap, refusal: Refusal) -> Response<Body> {
    match is_grpc(headers) {
        true => Status::from(refusal).into_http(),
        false => problem(&refusal, Map::new()),
    }
}

/// The refusal as a response, with more members than it has itself.
#[must_use]
pub fn problem(refusal: &Refusal, more: Map<String, Value>) -> Response<Body> {
    let status = http_status(refusal.reason);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    problem_as(status, refusal, more)
}

/// The same with another status, for what HTTP has a status of its own for.
#[must_use]
pub fn problem_as(
    status: StatusCode,
    refusal: &Refusal,
    more: Map<String, Value>,
) -> Response<Body> {
    let mut members = members(status, refusal);
    members.extend(more);
    let body = Value::Object(members).to_string();
    let mut response = Response::new(Body::new(Full::new(Bytes::from(body))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PROBLEM);
    if let Some(after) = refusal.retry_after {
        // Whole seconds, rounded up: no caller may come back too early.
        let seconds = after.as_nanos().div_ceil(1_000_000_000);
        headers.insert(RETRY_AFTER, HeaderValue::from(clamped(seconds)));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// What a refusal says, as members of a JSON object.
#[must_use]
pub fn members(status: StatusCode, refusal: &Refusal) -> Map<String, Value> {
    let reason = reason_name(refusal.reason);
    let mut members = Map::new();
    let mut set = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
    set("type", json!(format!("urn:ringfence:reason:{reason}")));
    set("title", json!(title(refusal.reason)));
    set("status", json!(status.as_u16()));
    set("detail", json!(refusal.message));
    set("reason", json!(reason));
    // Of this try: an earlier one without an answer may still have its effect.
    let outcome = match refusal.is_certain() {
        true => NOT_DONE,
        false => UNKNOWN,
    };
    set("outcome", json!(outcome));
    if let Some(after) = refusal.retry_after {
        let millis = after.as_nanos().div_ceil(1_000_000);
        set("retry_after_ms", json!(clamped(millis)));
    }
    if !refusal.metadata.is_empty() {
        set("details", json!(refusal.metadata));
    }
    members
}

fn clamped(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// A reason in a few words; the same for each refusal with it.
fn title(reason: Reason) -> String {
    reason_name(reason).to_lowercase().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_refusal_says_whether_its_try_is_not_done_or_unknown() {
        let outcome = |refusal: &Refusal| {
            let members = members(StatusCode::OK, refusal);
            members["outcome"].as_str().map(ToOwned::to_owned)
        };
        let unavailable = Refusal::unavailable("no leader", None, Duration::from_millis(1_200));
        assert_eq!(outcome(&unavailable).as_deref(), Some("not_done"));
        assert_eq!(
            outcome(&Refusal::outcome_unknown("x")).as_deref(),
            Some("unknown")
        );
        assert_eq!(outcome(&Refusal::fault("x")).as_deref(), Some("unknown"));

        let response = problem(&unavailable, Map::new());
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        assert_eq!(response.headers()[CONTENT_TYPE], PROBLEM);
    }

    #[test]
    fn no_reason_shares_its_status_with_an_unknown_outcome() {
        use ringfence_proto::refusal::http_status;
        let unknown = http_status(Reason::OutcomeUnknown);
        let others = (0..100).filter_map(|number| Reason::try_from(number).ok());
        for other in others.filter(|reason| *reason != Reason::OutcomeUnknown) {
            assert_ne!(http_status(other), unknown, "{other:?}");
        }
    }
}
