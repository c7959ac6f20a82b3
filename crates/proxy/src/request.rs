//! The head of a request as the service gets it, and of an answer as the caller gets it.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, request};
use http_body::Body;

use crate::{Failure, Upstream};

/// Who has asked the proxies before.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What is of one connection alone (RFC 9110, section 7.6.1).
const OF_CONNECTION: [HeaderName; 10] = [
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
];

/// Refuses what this proxy and a service could read in two ways, and what leaves HTTP.
pub(crate) fn check(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Failure> {
    if *method == Method::CONNECT || leaves_http(headers) {
        return Err(Failure::Upgrade);
    }
    let malformed = |what: &str| Err(Failure::Malformed(what.to_owned()));
    if !uri.path().starts_with('/') {
        return malformed("the request names no path; send one that begins with `/`");
    }
    if headers.contains_key(CONTENT_LENGTH) && headers.contains_key(TRANSFER_ENCODING) {
        return malformed("both `content-length` and `transfer-encoding` came; send one of them");
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some_and(|coding| !is_chunked(coding)) || codings.next().is_some() {
        return malformed("`transfer-encoding` is not `chunked` alone; send it so, or a length");
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return malformed("`host` came more than once; send one");
    }
    if let (Some(host), Some(authority)) = (host, uri.authority())
        && !host
            .as_bytes()
            .eq_ignore_ascii_case(authority.as_str().as_bytes())
    {
        return malformed("`host` and the address of the request name two hosts; send one of them");
    }
    // To strip what a caller names would let it take away what others rely on.
    for name in named_by_connection(headers) {
        let is_known = OF_CONNECTION.iter().any(|known| name == known.as_str());
        if !is_known && name != "close" {
            return Err(Failure::Malformed(format!(
                "`connection` names `{}`, which is not of one connection alone; leave it away",
                name.escape_default()
            )));
        }
    }
    Ok(())
}

/// Makes a body whose length is not known one of chunks: what sends it takes a `GET` or a `HEAD` without this
/// for one that has no body.
pub(crate) fn in_chunks<B: Body>(head: &mut request::Parts, body: &B) {
    if !body.is_end_stream() && body.size_hint().exact().is_none() {
        let chunked = HeaderValue::from_static("chunked");
        head.headers.insert(TRANSFER_ENCODING, chunked);
    }
}

/// The head as the service gets it. The length of the body, if it is known, is written by what sends it.
pub(crate) fn towards(upstream: &Upstream, head: &mut request::Parts, caller: IpAddr) {
    let headers = &mut head.headers;
    for name in OF_CONNECTION {
        headers.remove(name);
    }
    // This proxy has said that it goes on, and it counts the bytes.
    headers.remove(EXPECT);
    headers.remove(CONTENT_LENGTH);
    let host = head.uri.authority().map(|authority| authority.as_str());
    let host = host.or((!headers.contains_key(HOST)).then(|| upstream.authority().as_str()));
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        headers.insert(HOST, host);
    }
    // HTTP/2 has one for each, HTTP/1.1 one for all.
    join(headers, &COOKIE, "; ", None);
    join(headers, &FORWARDED_FOR, ", ", Some(&caller.to_string()));
    let path = head.uri.path_and_query().cloned();
    head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    head.version = Version::HTTP_11;
}

/// Removes what is of the service's connection alone.
pub(crate) fn from_service(headers: &mut HeaderMap) {
    // Of two lengths it is the chunks that were read.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in named_by_connection(headers) {
        headers.remove(name.as_str());
    }
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}

fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).iter();
    let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let names = texts.flat_map(|text| {
        let names = text.split(',').map(|name| name.trim().to_owned());
        names.collect::<Vec<_>>()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// Makes one header of several, with another value behind them.
fn join(headers: &mut HeaderMap, name: &HeaderName, between: &str, last: Option<&str>) {
    let values: Vec<&[u8]> = (headers.get_all(name).iter())
        .map(HeaderValue::as_bytes)
        .chain(last.map(str::as_bytes))
        .collect();
    if let Ok(joined) = HeaderValue::from_bytes(&values.join(between.as_bytes()))
        && !values.is_empty()
    {
        headers.insert(name, joined);
    }
}

/// Whether another protocol is asked for. HTTP/2 in the clear is HTTP: the question is not passed on, and
/// the answer comes as HTTP/1.1.
fn leaves_http(headers: &HeaderMap) -> bool {
    headers.get_all(UPGRADE).iter().any(|value| {
        value.to_str().map_or(true, |names| {
            names
                .split(',')
                .any(|name| !name.trim().eq_ignore_ascii_case("h2c"))
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::Request;

    use super::*;

    fn checked(request: http::request::Builder) -> Option<&'static str> {
        let (head, ()) = request.body(()).unwrap().into_parts();
        let checked = check(&head.method, &head.uri, &head.headers);
        checked.err().map(|failure| failure.reason())
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let post = || Request::post("http://a/x");
        assert_eq!(checked(post()), None);
        assert_eq!(checked(post().header("connection", "Close, TE")), None);
        assert_eq!(checked(post().header("host", "A")), None);
        assert_eq!(checked(post().header("transfer-encoding", "Chunked")), None);
        let cases: [&[(&str, &str)]; 9] = [
            &[("content-length", "1"), ("transfer-encoding", "chunked")],
            &[("transfer-encoding", "gzip, chunked")],
            &[
                ("transfer-encoding", "chunked"),
                ("transfer-encoding", "chunked"),
            ],
            &[("transfer-encoding", "xchunked")],
            &[("host", "b")],
            &[("host", "a"), ("host", "a")],
            &[("connection", "host")],
            &[("connection", "keep-alive, Authorization")],
            &[("connection", "ringfence-token")],
        ];
        for case in cases {
            let request = case.iter().fold(post(), |request, (name, value)| {
                request.header(*name, *value)
            });
            assert_eq!(checked(request), Some("MALFORMED_REQUEST"), "{case:?}");
        }
        assert_eq!(
            checked(post().header("upgrade", "websocket")),
            Some("UPGRADE_REFUSED")
        );
        assert_eq!(checked(Request::options("*")), Some("MALFORMED_REQUEST"));
    }

    #[test]
    fn the_service_gets_one_host_one_cookie_header_and_no_length_of_the_caller() {
        let request = Request::post("http://bank.example/x?y=%2f")
            .version(Version::HTTP_2)
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("content-length", "7")
            .header("x-forwarded-for", "10.0.0.1")
            .header("te", "trailers")
            .header("proxy-authorization", "x");
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let upstream = Upstream::parse("http://127.0.0.1:1").unwrap();
        towards(&upstream, &mut head, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(head.uri, "/x?y=%2f");
        assert_eq!(head.version, Version::HTTP_11);
        let mut headers: Vec<_> = (head.headers.iter())
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        headers.sort();
        assert_eq!(
            headers,
            [
                "cookie: a=1; b=2",
                "host: bank.example",
                "x-forwarded-for: 10.0.0.1, 127.0.0.1"
            ]
        );
    }
}
