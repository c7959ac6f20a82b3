//! A request on its way to the service, and the answer on its way back.

use std::net::IpAddr;

use http::header::{
    CONNECTION, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{sleep_until, timeout_at};

use crate::answer::{AnswerBody, End, Passing};
use crate::clock::now;
use crate::passage::Permit;
use crate::{Failure, Options, Upstream};

/// How long a connection to the service may take.
const CONNECT_MAX: std::time::Duration = std::time::Duration::from_secs(5);
/// Who has asked the proxies before.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Connections to the service.
pub(crate) type Service = Client<HttpConnector, Incoming>;

/// What speaks to the service.
pub(crate) fn service(upstream: &Upstream) -> Service {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_MAX));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .http2_only(upstream.is_http2())
        // A request that was sent is not sent again: the service may have done it.
        .retry_canceled_requests(false)
        .build(tcp)
}

/// Sends a request to the service, and has its answer from the head on. The request is inside until the
/// answer has ended, also when its caller has gone.
pub(crate) async fn forward(
    service: Service,
    options: &Options,
    request: Request<Incoming>,
    caller: IpAddr,
    permit: Option<Permit>,
) -> Result<Response<AnswerBody>, Failure> {
    let request = towards(&options.upstream, request, caller);
    let until = now() + options.request_max;
    // In a task of its own: a caller that goes away takes back nothing of what was sent.
    let answered = tokio::spawn(async move {
        let sent = timeout_at(until, service.request(request));
        let Some(permit) = permit else {
            return sent
                .await
                .map(|answer| (answer, None))
                .map_err(|_| Failure::Late);
        };
        let cut = permit.cut();
        let answer = tokio::select! {
            answer = sent => answer.map_err(|_| Failure::Late)?,
            () = cut => return Err(Failure::Cut),
        };
        Ok((answer, Some(permit)))
    });
    let answered = answered.await;
    let (answer, permit) = answered.map_err(|error| Failure::Broken(error.to_string()))??;
    let answer = answer.map_err(|error| match error.is_connect() {
        true => Failure::Unreached(with_sources(&error)),
        false => Failure::Broken(with_sources(&error)),
    })?;
    let inside = permit.map(|permit| {
        let cut = permit.cut();
        let end: End = Box::pin(async move {
            tokio::select! {
                () = sleep_until(until) => Failure::Late,
                () = cut => Failure::Cut,
            }
        });
        (permit, end)
    });
    let (mut head, body) = answer.into_parts();
    remove_of_connection(&mut head.headers);
    head.version = Version::default();
    Ok(Response::from_parts(
        head,
        http_body_util::Either::Left(Passing::new(body, inside)),
    ))
}

/// The request as the service gets it.
fn towards(upstream: &Upstream, request: Request<Incoming>, caller: IpAddr) -> Request<Incoming> {
    let (mut head, body) = request.into_parts();
    let headers = &mut head.headers;
    let takes_trailers = headers.get_all(TE).iter().any(|value| {
        value
            .to_str()
            .is_ok_and(|te| te.split(',').any(|one| one.trim() == "trailers"))
    });
    remove_of_connection(headers);
    // This proxy has said that it goes on.
    headers.remove(EXPECT);
    if takes_trailers {
        // gRPC asks for it.
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // Of HTTP/2, where it is a part of the address.
    if let Some(authority) = head.uri.authority()
        && !headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(HOST, host);
    }
    add_caller(headers, caller);
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(upstream.authority().clone());
    let path = head.uri.path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    // All three are there.
    head.uri = Uri::from_parts(parts).unwrap_or_default();
    head.version = match upstream.is_http2() {
        true => {
            head.headers.remove(HOST);
            Version::HTTP_2
        }
        false => Version::HTTP_11,
    };
    Request::from_parts(head, body)
}

/// Removes what is of one connection alone (RFC 9110, section 7.6.1).
fn remove_of_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        // A fence is not taken away on the way: the service may look at it, too.
        if !name.as_str().starts_with("ringfence-") {
            headers.remove(name);
        }
    }
    for name in [
        CONNECTION,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        HeaderName::from_static("http2-settings"),
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
}

fn add_caller(headers: &mut HeaderMap, caller: IpAddr) {
    let before: Vec<&str> = headers
        .get_all(&FORWARDED_FOR)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let mut all = before.join(", ");
    if !all.is_empty() {
        all.push_str(", ");
    }
    all.push_str(&caller.to_string());
    if let Ok(all) = HeaderValue::from_str(&all) {
        headers.insert(FORWARDED_FOR, all);
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
