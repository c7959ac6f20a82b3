//! The calls of a node as HTTP and JSON: an edge in front of the services of `ringfence_services`,
//! which decide who may ask what, and answer. It decides nothing and opens no socket.
//!
//! ```text
//!  request ─▶ routes ─▶ call: body, fields, numbers ─▶ services' own methods ─▶ shown as JSON
//!                                                        └▶ refusal ─▶ application/problem+json
//! ```

mod abandoned;
mod acquire;
mod barred;
mod call;
mod changes;
mod console;
mod events;
mod fields;
mod handle;
mod heads;
mod hidden;
mod numbers;
mod pages;
mod query;
mod reads;
mod repeats;
mod routes;
mod sessions;
mod shown;
mod urls;
mod window;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::Full;
use ringfence_proto::Refusal;
use ringfence_services::problem::{is_grpc, problem_as};
use ringfence_services::{Client, LeaseService, NoBody, SessionService, WholeBody};
use serde_json::Map;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use crate::call::{Answer, Call, Refused, respond};
use crate::query::Query;
use crate::routes::{Does, Found, find};

pub use console::Console;
pub use pages::{CONSOLE_HEADER, admit_console, refuse_page};
pub use routes::route_of;
pub use urls::path_to_show;
pub use window::validity;

/// The description of all calls, OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("../../../proto/openapi.json");

/// What serves calls in HTTP and JSON. It answers each request that no gRPC service takes.
#[derive(Clone)]
pub struct Rest {
    leases: Arc<LeaseService>,
    sessions: Arc<SessionService>,
    /// For requests without a connection of their own.
    stray: Client,
}

impl Rest {
    /// Calls of these services. `stray` is charged for requests that name no connection.
    #[must_use]
    pub fn new(leases: Arc<LeaseService>, sessions: Arc<SessionService>, stray: Client) -> Self {
        Self {
            leases,
            sessions,
            stray,
        }
    }

    /// The method and the path of each call, as OpenAPI writes them.
    pub fn routes() -> impl Iterator<Item = (Method, &'static str)> {
        let routes = routes::ROUTES.into_iter();
        routes.map(|(method, path, _)| (method, path))
    }

    /// Answers a request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes>,
    {
        if is_grpc(request.headers()) {
            return Status::unimplemented("").into_http();
        }
        let (head, body) = request.into_parts();
        if let Some(refused) = heads::strange(&head) {
            return refused;
        }
        if let Err(refusal) = urls::without_secrets(&head.uri) {
            return respond(Err(refusal.into()));
        }
        let path = head.uri.path().to_owned();
        let (does, rest) = match find(&head.method, &path) {
            Found::Call(does, rest) => (does, rest),
            Found::OtherMethod(allowed) => return other_method(&head.method, &allowed),
            Found::Nothing => {
                let what = format!("call {path:?}; /v1/openapi.json lists all of them");
                return respond(Err(Refusal::not_found(what).into()));
            }
        };
        if let Some(refused) = pages::by_a_page(&head) {
            return refused;
        }
        if head.method == Method::GET {
            let call = Call::new(head, rest, None);
            return self.get_call(does, &call).await;
        }
        if let Some(refused) = heads::not_json(&head.headers) {
            return refused;
        }
        let client = head
            .extensions
            .get::<Client>()
            .unwrap_or(&self.stray)
            .clone();
        let call = Call::new(head, rest, self.leases.cluster());
        match client.whole_body(body).await {
            Ok(body) => respond(self.post(does, &call, &body).await),
            Err(why) => no_body(why),
        }
    }

    async fn get_call(&self, does: Does, call: &Call) -> Response<Body> {
        let answered = match does {
            Does::OpenApi => {
                return match call.query().and_then(Query::end) {
                    Ok(()) => open_api(),
                    Err(refusal) => respond(Err(refusal.into())),
                };
            }
            Does::Watch => return self.watch(call).await.unwrap_or_else(|no| respond(Err(no))),
            Does::WatchFloors => {
                let begun = self.watch_floors(call).await;
                return begun.unwrap_or_else(|no| respond(Err(no)));
            }
            Does::ListLeases => self.list(call).await,
            Does::GetLease => self.get(call).await,
            Does::Check => self.check(call).await,
            Does::History => self.history(call).await,
            Does::HistoryOfToken => self.history_of_token(call).await,
            Does::OpenSession
            | Does::KeepAlive
            | Does::Close
            | Does::Acquire
            | Does::Cancel
            | Does::Release
            | Does::Transfer
            | Does::Revoke => Err(misrouted()),
        };
        respond(answered)
    }

    async fn post(&self, does: Does, call: &Call, body: &WholeBody) -> Result<Answer, Refused> {
        let body = body.bytes();
        match does {
            Does::OpenSession => self.open_session(call, body).await,
            Does::KeepAlive => self.keep_alive(call, body).await,
            Does::Close => self.close(call, body).await,
            Does::Acquire => Box::pin(self.acquire(call, body)).await,
            Does::Cancel => self.cancel(call, body).await,
            Does::Release => self.release(call, body).await,
            Does::Transfer => self.transfer(call, body).await,
            Does::Revoke => self.revoke(call, body).await,
            Does::ListLeases
            | Does::GetLease
            | Does::Check
            | Does::History
            | Does::HistoryOfToken
            | Does::Watch
            | Does::WatchFloors
            | Does::OpenApi => Err(misrouted()),
        }
    }
}

impl<B> Service<Request<B>> for Rest
where
    B: HttpBody<Data = Bytes> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let rest = self.clone();
        Box::pin(async move { Ok(rest.answer(request).await) })
    }
}

/// The table of routes names each method once, so that this is never said.
fn misrouted() -> Refused {
    Refusal::fault("a call came by another method than its own").into()
}

fn other_method(offered: &Method, allowed: &Method) -> Response<Body> {
    let refusal = Refusal::invalid("method", hidden::shown(offered.as_str()), allowed);
    let mut response = problem_as(StatusCode::METHOD_NOT_ALLOWED, &refusal, Map::new());
    if let Ok(allowed) = HeaderValue::from_str(allowed.as_str()) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

fn no_body(why: NoBody) -> Response<Body> {
    let (status, refusal) = match why {
        NoBody::TooLarge(refusal) => (StatusCode::PAYLOAD_TOO_LARGE, refusal),
        NoBody::TooSlow(refusal) => (StatusCode::REQUEST_TIMEOUT, refusal),
        NoBody::Crowded(refusal) => (StatusCode::TOO_MANY_REQUESTS, refusal),
        NoBody::Broken(refusal) => (StatusCode::BAD_REQUEST, refusal),
    };
    problem_as(status, &refusal, Map::new())
}

fn open_api() -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(Bytes::from_static(OPENAPI.as_bytes()))));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
