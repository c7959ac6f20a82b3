//! What a caller gets: the service's answer, or why there is none.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use ringfence_guard::Refused;
use ringfence_guard::tower::{STALE_HEADER, TurnedAway};
use serde_json::json;
use tokio::sync::mpsc;

use crate::Failure;
use crate::failure::Rejected;

/// The body of an answer.
pub(crate) type AnswerBody = Either<Passing, Full<Bytes>>;

/// The service's answer has broken off.
#[derive(Debug, thiserror::Error)]
#[error("the service's answer has not come to its end")]
pub(crate) struct Broken;

/// The body of a service's answer. Nothing at the service depends on whether it is read.
pub(crate) struct Passing {
    parts: mpsc::Receiver<Bytes>,
    has_ended: Arc<AtomicBool>,
    size: SizeHint,
}

/// Where it comes from. Dropped before its end, the answer breaks off.
pub(crate) struct Passer {
    to: mpsc::Sender<Bytes>,
    has_ended: Arc<AtomicBool>,
}

impl Passing {
    pub(crate) fn new(body: &Incoming) -> (Passer, Self) {
        let (to, parts) = mpsc::channel(1);
        let has_ended = Arc::new(AtomicBool::new(body.is_end_stream()));
        let passer = Passer {
            to,
            has_ended: Arc::clone(&has_ended),
        };
        let size = body.size_hint();
        (
            passer,
            Self {
                parts,
                has_ended,
                size,
            },
        )
    }
}

impl Passer {
    /// Waits until there is room. It is gone if the caller is.
    pub(crate) async fn send(&self, data: Bytes) {
        self.to.send(data).await.ok();
    }

    /// All was sent.
    pub(crate) fn end(self) {
        self.has_ended.store(true, Ordering::Release);
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        Poll::Ready(match ready!(self.parts.poll_recv(cx)) {
            Some(data) => {
                let (length, rest) = (data.len() as u64, self.size.exact());
                if let Some(rest) = rest {
                    self.size.set_exact(rest.saturating_sub(length));
                }
                Some(Ok(Frame::data(data)))
            }
            // It is set before the other side is dropped.
            None if self.has_ended.load(Ordering::Acquire) => None,
            None => Some(Err(Broken)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended.load(Ordering::Acquire) && self.parts.is_closed() && self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

/// The answer to a request that the service has no part in.
pub(crate) fn rejected(rejected: &Rejected) -> Response<AnswerBody> {
    match rejected {
        Rejected::TurnedAway(away) => turned_away(away),
        Rejected::Failed(failure) => failed(failure),
    }
}

/// To one that is not let in. Nothing was done for it.
fn turned_away(away: &TurnedAway) -> Response<AnswerBody> {
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

fn failed(failure: &Failure) -> Response<AnswerBody> {
    let none = serde_json::Map::new();
    let mut response = problem(
        failure.status(),
        failure.reason(),
        &failure.to_string(),
        failure.is_certain(),
        &none,
    );
    if matches!(failure, Failure::Busy(_)) {
        response.headers_mut().insert(RETRY_AFTER, 1.into());
    }
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
