//! What a caller gets: the service's answer, or why there is none.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use ringfence_guard::Refused;
use ringfence_guard::tower::{STALE_HEADER, TurnedAway};
use serde_json::json;

use crate::Failure;
use crate::passage::Permit;

/// The body of an answer.
pub(crate) type AnswerBody = Either<Passing, Full<Bytes>>;

/// Why the body of a service's answer has broken off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Service(#[from] hyper::Error),
    #[error(transparent)]
    Ended(#[from] Failure),
}

/// Ends what is inside for too long, or under an older token than one that shall not wait for it.
pub(crate) type End = Pin<Box<dyn Future<Output = Failure> + Send>>;

/// The body of a service's answer. While it comes its request is inside.
pub(crate) struct Passing {
    body: Incoming,
    inside: Option<(Permit, End)>,
}

impl Passing {
    pub(crate) fn new(body: Incoming, inside: Option<(Permit, End)>) -> Self {
        Self { body, inside }
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some((_, end)) = &mut self.inside
            && let Poll::Ready(failure) = end.as_mut().poll(cx)
        {
            self.inside = None;
            return Poll::Ready(Some(Err(failure.into())));
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.inside = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Broken::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether a request with these headers speaks gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// The answer to a request that is not let in. Nothing was done for it.
pub(crate) fn turned_away(is_grpc: bool, away: &TurnedAway) -> Response<AnswerBody> {
    if is_grpc {
        return of_grpc(away.grpc_headers());
    }
    let status = match away {
        // What came with the request is a condition that does not hold.
        TurnedAway::Refused(Refused::StaleToken { .. }) => StatusCode::PRECONDITION_FAILED,
        away => away.http_status(),
    };
    let details: serde_json::Map<_, _> = away
        .metadata()
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
    let mut response = problem(status, away.reason(), &away.to_string(), true, &details);
    // Those that the layer of the guards sends, too.
    let as_layer = away.http_response();
    for name in [RETRY_AFTER.as_str(), STALE_HEADER] {
        if let Some(value) = as_layer.headers().get(name) {
            response.headers_mut().insert(
                http::HeaderName::from_bytes(name.as_bytes()).unwrap_or(RETRY_AFTER),
                value.clone(),
            );
        }
    }
    response
}

/// The answer to a request without an answer of the service.
pub(crate) fn failed(is_grpc: bool, failure: &Failure) -> Response<AnswerBody> {
    let message = failure.to_string();
    if is_grpc {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", u16::from(failure.grpc_code()).into());
        if let Ok(message) = HeaderValue::from_str(&message.replace('%', "%25")) {
            headers.insert("grpc-message", message);
        }
        return of_grpc(headers);
    }
    let none = serde_json::Map::new();
    problem(
        failure.status(),
        failure.reason(),
        &message,
        failure.is_certain(),
        &none,
    )
}

fn of_grpc(headers: HeaderMap) -> Response<AnswerBody> {
    let mut response = Response::new(Either::Right(Full::default()));
    *response.headers_mut() = headers;
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, grpc);
    response
}

/// A document of RFC 9457, with the members that the cluster's own have.
fn problem(
    status: StatusCode,
    reason: &str,
    message: &str,
    is_certain: bool,
    details: &serde_json::Map<String, serde_json::Value>,
) -> Response<AnswerBody> {
    let mut document = json!({
        "type": format!("urn:ringfence:reason:{reason}"),
        "title": reason.to_lowercase().replace('_', " "),
        "status": status.as_u16(),
        "detail": message,
        "reason": reason,
        "outcome": match is_certain { true => "not_done", false => "unknown" },
    });
    if !details.is_empty() {
        document["details"] = details.clone().into();
    }
    let mut response = Response::new(Either::Right(Full::from(document.to_string())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
