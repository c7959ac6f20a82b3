//! What stands before all services of the client port: each call takes a little of its
//! connection's account, and what it sends and receives is counted.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use tower::{Layer, Service};

use super::account::{Account, Pool};
use super::body::Answer;
use super::client::Client;
use super::counted::Counted;
use super::incoming::Question;
use super::reserved::Reserved;
use crate::limits::{BYTES_PER_CALL, BYTES_PER_CONNECTION_MAX};
use crate::problem::{is_grpc, refused};
use crate::rates::Meter;
use crate::status::RETRY_AFTER;

/// Counts the calls of a service.
#[derive(Clone)]
pub struct MeteredLayer {
    pool: Arc<Pool>,
}

impl MeteredLayer {
    /// For connections without an account, of this pool.
    #[must_use]
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool }
    }
}

impl<S> Layer<S> for MeteredLayer {
    type Service = Metered<S>;

    fn layer(&self, service: S) -> Metered<S> {
        let pool = Arc::clone(&self.pool);
        Metered { service, pool }
    }
}

/// See [`MeteredLayer`].
#[derive(Clone)]
pub struct Metered<S> {
    service: S,
    pool: Arc<Pool>,
}

impl<S> Service<http::Request<tonic::body::Body>> for Metered<S>
where
    S: Service<http::Request<tonic::body::Body>, Response = http::Response<tonic::body::Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let client = request.extensions().get::<Client>();
        let account = client.map_or_else(
            || Account::new(Arc::clone(&self.pool)),
            |client| Arc::clone(client.account()),
        );
        let Some(call) = account.try_reserve(BYTES_PER_CALL) else {
            let refused = refused(request.headers(), crowded());
            return Box::pin(std::future::ready(Ok(refused)));
        };
        let of_question = Arc::clone(&account);
        let meter = request.extensions().get::<Meter>().cloned();
        let frames = is_grpc(request.headers());
        let request = request.map(|body| match frames {
            true => {
                let question = Question::new(body, of_question).metered(meter.clone());
                tonic::body::Body::new(question)
            }
            // What reads it makes the room.
            false => tonic::body::Body::new(Counted::new(body, meter.clone())),
        });
        let answer = self.service.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            let reserved = response.extensions_mut().remove::<Reserved>();
            let (head, body) = response.into_parts();
            let mut answer = Answer::new(body, call, account).metered(meter);
            if let Some(room) = reserved.and_then(Reserved::taken) {
                answer.encode(room).await;
            }
            let body = tonic::body::Body::new(answer);
            Ok(http::Response::from_parts(head, body))
        })
    }
}

/// The connection holds as much as it may; nothing was done.
pub(crate) fn crowded() -> Refusal {
    let message = format!(
        "bytes_per_connection: at most {BYTES_PER_CONNECTION_MAX} are held for one connection, and \
         less while the node holds much for others; read the answers that wait, or make fewer \
         calls at a time"
    );
    Refusal::new(Reason::Limit, message)
        .with("limit", "bytes_per_connection")
        .with("max", BYTES_PER_CONNECTION_MAX)
        .retry_after(RETRY_AFTER)
}
