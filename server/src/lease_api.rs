//! The Lease endpoint: `coordination.k8s.io/v1` for electors that speak the API of Kubernetes and
//! know neither sessions nor tokens.
//!
//! ```text
//!  request ─▶ ringfence_lease_api: route, body, patch ─▶ reads, lists, writes, watch ─▶ ObjectService
//!  answer  ◀─ ringfence_lease_api: object, list, table, Status ◀─ shown ◀──────────┘
//! ```
//!
//! It decides nothing: who holds a lease, and on which version a write is based, is judged by the
//! entry that the write becomes.

mod failures;
mod lists;
mod reads;
mod shown;
mod watch;
mod writes;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WARNING,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Body as HttpBody;
use http_body_util::Full;
use ringfence_core::LeaseName;
use ringfence_lease_api::route::{Route, parse};
use ringfence_lease_api::{Failure, accept, discovery, shown as encoded};
use ringfence_services::{Client, Context, ObjectCaller, ObjectService};
use tonic::body::Body;
use tower::Service;

/// The most bytes of a request's body: an object takes 4 KiB, and a client may send more of it than
/// is kept.
const BODY_BYTES_MAX: usize = 256 << 10;

/// What serves the Lease endpoint.
#[derive(Clone)]
pub(crate) struct LeaseApi {
    objects: ObjectService,
    /// For requests without a connection of their own.
    stray: Arc<Client>,
}

/// An answer.
struct Answer {
    status: StatusCode,
    body: Body,
    warnings: Vec<String>,
    /// Headers of its own.
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Answer {
    /// One that is complete.
    fn ok(body: Vec<u8>) -> Self {
        Self::streamed(Body::new(Full::new(Bytes::from(body))))
    }

    /// One whose body is made while it is written.
    fn streamed(body: Body) -> Self {
        Self {
            status: StatusCode::OK,
            body,
            warnings: Vec::new(),
            headers: Vec::new(),
        }
    }

    /// The same with another status, and with what was wrong with the request.
    fn with(mut self, status: StatusCode, warnings: Vec<String>) -> Self {
        self.status = status;
        self.warnings.splice(..0, warnings);
        self
    }

    fn response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(accept::CONTENT_TYPE));
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        for warning in self.warnings {
            if let Ok(value) = HeaderValue::from_str(&encoded::warning(&warning)) {
                headers.append(WARNING, value);
            }
        }
        response
    }
}

/// A refusal as Kubernetes words it.
fn refused(failure: &Failure) -> Response<Body> {
    let status = StatusCode::from_u16(failure.code());
    let mut answer = Answer::ok(failure.body());
    answer.status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = failure.retry_after() {
        answer.headers.push((RETRY_AFTER, seconds.into()));
    }
    answer.response()
}

/// The path of a call with one answer, without the names in it; `None` for anything else.
pub(crate) fn route_of(method: &Method, uri: &Uri) -> Option<&'static str> {
    match parse(method.as_str(), uri.path(), uri.query()).ok()? {
        Route::Get(..) | Route::Update(..) | Route::Patch(..) | Route::Delete(..) => {
            Some("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
        }
        Route::List(Some(_), _) | Route::Create(..) => {
            Some("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
        }
        Route::List(None, _) => Some("/apis/coordination.k8s.io/v1/leases"),
        Route::Watch(..) | Route::Document(_) => None,
    }
}

/// The lease that its holder may ask for like this with a token that has expired.
pub(crate) fn own_lease<B>(request: &Request<B>) -> Option<LeaseName> {
    let uri = request.uri();
    match parse(request.method().as_str(), uri.path(), uri.query()).ok()? {
        Route::Get(key, _) | Route::Update(key, _) | Route::Patch(key, _) => {
            shown::name_of(&key.namespace, &key.name).ok()
        }
        _ => None,
    }
}

/// A request without its body.
struct Asked {
    head: Parts,
    caller: ObjectCaller,
}

impl Asked {
    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    fn content_type(&self) -> Option<&str> {
        self.header(&CONTENT_TYPE)
    }

    fn accept(&self) -> Option<String> {
        all_of(&self.head.headers, &ACCEPT)
    }
}

/// The values of a header that may be sent more than once.
fn all_of(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values = headers.get_all(name).iter();
    let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

impl LeaseApi {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            objects: ObjectService::new(context.clone()),
            stray: Arc::new(Client::new(context.new_account())),
        }
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send,
    {
        let (head, body) = request.into_parts();
        let route = match parse(head.method.as_str(), head.uri.path(), head.uri.query()) {
            Ok(Route::Document(document)) => {
                let version = env!("CARGO_PKG_VERSION");
                return Answer::ok(discovery::body(document, version)).response();
            }
            route => route,
        };
        let client = head.extensions.get::<Client>().cloned();
        let client = client.unwrap_or_else(|| Client::clone(&self.stray));
        let caller = self.objects.caller(&head.extensions);
        let asked = Asked { head, caller };
        if let Ok(Route::Watch(namespace, options)) = route {
            let begun = self.watch(asked, namespace, options).await;
            return begun.unwrap_or_else(|failure| refused(&failure));
        }
        // Also of a request that is refused: a client that is still sending loses the answer with the
        // connection.
        let body = match client.whole_body(body).await {
            Ok(body) => body,
            Err(why) => return refused(&failures::no_body(why)),
        };
        if body.bytes().len() > BODY_BYTES_MAX {
            return refused(&Failure::too_large(BODY_BYTES_MAX));
        }
        let answered = match route {
            Ok(route) => self.route(asked, route, body.bytes()).await,
            Err(failure) => Err(failure),
        };
        match answered {
            Ok(answer) => answer.response(),
            Err(failure) => refused(&failure),
        }
    }

    async fn route(&self, asked: Asked, route: Route, body: &[u8]) -> Result<Answer, Failure> {
        match route {
            Route::Get(key, options) => self.get(&asked, key, options).await,
            Route::List(namespace, options) => self.list(&asked, namespace, options).await,
            Route::Create(namespace, options) => {
                self.create(&asked, namespace, options, body).await
            }
            Route::Update(key, options) => self.update(&asked, key, options, body).await,
            Route::Patch(key, options) => self.patch(&asked, key, options, body).await,
            Route::Delete(key, options) => self.delete(&asked, key, options, body).await,
            Route::Document(_) | Route::Watch(..) => {
                Err(Failure::internal("the request was routed twice"))
            }
        }
    }
}

impl<B> Service<Request<B>> for LeaseApi
where
    B: HttpBody<Data = Bytes> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move { Ok(api.answer(request).await) })
    }
}
