//! The spans of calls with one answer, by gRPC or by HTTP. It stands behind what proves callers: no
//! stranger whose call is refused begins a span.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use ringfence_proto::TraceParent;
use ringfence_raft::{Serving, Spans};
use ringfence_services::{UNARY_METHODS, end_with_code, note_method};
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::http::uri::Authority;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tower::{Layer, Service};

use crate::lease_api::route_of as lease_api_route;

/// How much of a path is recorded, in letters: that of the longest name of a lease, and more.
const URL_LETTERS_MAX: usize = 1_024;
/// How much of a host is recorded, in letters: the longest name of one.
const HOST_LETTERS_MAX: usize = 253;

/// Begins the span of each call, if it is to be recorded, and ends it with the head of its answer.
#[derive(Clone, Debug)]
pub(crate) struct TraceLayer(Spans, &'static str);

impl TraceLayer {
    /// Of a port that speaks this scheme.
    pub(crate) fn new(spans: &Spans, scheme: &'static str) -> Self {
        Self(spans.clone(), scheme)
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, service: S) -> Trace<S> {
        let (spans, scheme) = (self.0.clone(), self.1);
        Trace {
            service,
            spans,
            scheme,
        }
    }
}

/// See [`TraceLayer`].
#[derive(Clone)]
pub(crate) struct Trace<S> {
    service: S,
    spans: Spans,
    scheme: &'static str,
}

impl<S> Service<Request<Body>> for Trace<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Traced<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let serving = match self.spans.is_on() {
            true => begin(&self.spans, self.scheme, &request),
            false => None,
        };
        let _of_this = serving.as_ref().map(Serving::enter);
        let answer = self.service.call(request);
        Traced { answer, serving }
    }
}

pin_project! {
    /// The answer, and the span that ends with it.
    pub(crate) struct Traced<F> {
        #[pin]
        answer: F,
        serving: Option<Serving>,
    }
}

impl<F, E> Future for Traced<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let of_this = this.serving.as_ref().map(Serving::enter);
        let answer = ready!(this.answer.poll(cx));
        drop(of_this);
        if let Some(serving) = this.serving.take() {
            match &answer {
                Ok(answer) => end(serving, answer),
                Err(_) => serving.fail("_OTHER"),
            }
        }
        Poll::Ready(answer)
    }
}

/// The span of a call; `None` for one that is not recorded: a stream, a probe, what is not served.
fn begin(spans: &Spans, scheme: &'static str, request: &Request<Body>) -> Option<Serving> {
    let path = request.uri().path();
    let of_caller = || traceparent(request.headers());
    if let Some(method) = method(path) {
        let serving = spans.serve(method, of_caller)?;
        note_method(&serving, method);
        return Some(serving);
    }
    let verb = request.method();
    let route =
        ringfence_rest::route_of(verb, path).or_else(|| lease_api_route(verb, request.uri()))?;
    let serving = spans.serve(Cow::Owned(format!("{verb} {route}")), of_caller)?;
    let span = serving.span();
    span.note("http.request.method", verb.to_string());
    span.note("http.route", route);
    span.note("url.scheme", scheme);
    if let Some(path) = ringfence_rest::path_to_show(request.uri()) {
        span.note("url.path", cut(path, URL_LETTERS_MAX));
    }
    if let Some(host) = host(request) {
        span.note("server.address", cut(&host, HOST_LETTERS_MAX));
    }
    Some(serving)
}

/// The host that the caller has asked, by its own word.
fn host(request: &Request<Body>) -> Option<String> {
    if let Some(host) = request.uri().host() {
        return Some(host.to_owned());
    }
    let host = request.headers().get("host")?.to_str().ok()?;
    let host: Authority = host.parse().ok()?;
    Some(host.host().to_owned())
}

fn cut(text: &str, letters: usize) -> String {
    text.chars().take(letters).collect()
}

fn method(path: &str) -> Option<&'static str> {
    let asked = path.strip_prefix('/')?;
    UNARY_METHODS.into_iter().find(|method| *method == asked)
}

/// The caller's place in its trace. Two headers are none: it is not known which counts.
fn traceparent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut all = headers.get_all("traceparent").iter();
    let only = all.next().filter(|_| all.next().is_none());
    TraceParent::parse(only?.to_str().ok()?)
}

fn end(serving: Serving, answer: &Response<Body>) {
    let is_grpc = answer
        .headers()
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if is_grpc {
        // In the head if there is nothing but an error, else behind the answer.
        let code = answer.headers().get("grpc-status");
        let code = code.map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()));
        return end_with_code(serving, code);
    }
    let status = answer.status();
    if matches!(status.as_u16(), 401 | 403) {
        return serving.forget();
    }
    let span = serving.span();
    span.note("http.response.status_code", u64::from(status.as_u16()));
    match status.is_server_error() {
        true => serving.fail(status.as_str().to_owned()),
        false => serving.end(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_in_two_traces_is_in_none() {
        let one = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut headers = HeaderMap::new();
        headers.append("traceparent", one.parse().unwrap());
        assert_eq!(traceparent(&headers), TraceParent::parse(one));
        headers.append("traceparent", one.parse().unwrap());
        assert_eq!(traceparent(&headers), None);
    }

    #[test]
    fn streams_and_probes_have_no_span() {
        assert!(method("/ringfence.v1.Leases/Acquire").is_some());
        for path in [
            "/ringfence.v1.Leases/Watch",
            "/ringfence.v1.Connection/Stream",
            "/ringfence.v1.Leases/Acquire/",
            "/grpc.health.v1.Health/Check",
            "ringfence.v1.Leases/Acquire",
        ] {
            assert_eq!(method(path), None, "{path}");
        }
    }
}
