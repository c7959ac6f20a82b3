//! What the head of a request says of its caller, and what two readers could take differently in it.

use std::net::Ipv4Addr;

use http::header::{
    ACCEPT_LANGUAGE, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Response, StatusCode, Version};
use ringfence_proto::Refusal;
use ringfence_services::problem::problem_as;
use serde_json::Map;
use tonic::body::Body;

use crate::hidden;

/// The most bytes of the headers of one request, names and values together.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Headers that are too long, or that a proxy in front could read in another way.
pub(crate) fn strange(head: &Parts) -> Option<Response<Body>> {
    too_long(&head.headers).or_else(|| {
        let refusal = hosts(head).or_else(|| codings(&head.headers))?;
        Some(problem_as(StatusCode::BAD_REQUEST, &refusal, Map::new()))
    })
}

/// What HTTP/2 limits alike for all callers.
fn too_long(headers: &HeaderMap) -> Option<Response<Body>> {
    let sizes = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    let bytes = sizes.sum::<usize>();
    if bytes <= HEADER_BYTES_MAX {
        return None;
    }
    let allowed = format!("at most {HEADER_BYTES_MAX} bytes");
    let refusal = Refusal::invalid("headers", format!("{bytes} bytes"), allowed);
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    Some(problem_as(status, &refusal, Map::new()))
}

/// HTTP/1.1 has one `Host` (RFC 9112, section 3.2).
fn hosts(head: &Parts) -> Option<Refusal> {
    let count = values(&head.headers, &HOST).count();
    let is_right = match head.version {
        Version::HTTP_11 => count == 1,
        _ => count <= 1,
    };
    (!is_right).then(|| Refusal::invalid("Host", format!("{count} of them"), "one"))
}

/// A body in a coding that is not undone here would be read as what it is not.
fn codings(headers: &HeaderMap) -> Option<Refusal> {
    let mut codings = values(headers, &TRANSFER_ENCODING);
    let first = codings.next()?;
    if codings.next().is_none() && first.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return None;
    }
    let offered = "another coding, or several";
    Some(Refusal::invalid("Transfer-Encoding", offered, "chunked"))
}

fn values<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a HeaderValue> + use<'a> {
    headers.get_all(name).into_iter()
}

/// Web pages are refused: a page of any site could have the browser of a developer or operator call
/// a node that this machine reaches, and a node without rights would answer.
///
/// Of a page whose own name leads to the node (DNS rebinding) a browser says neither `Origin` nor
/// `Sec-Fetch-Site` if it reads, without TLS. It does say which languages it accepts, which programs
/// hardly ever do. Node.js and Deno accept `*` in every request, which no browser does.
pub(crate) fn by_a_page(head: &Parts) -> Option<Response<Body>> {
    let headers = &head.headers;
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let names_languages = || values(headers, &ACCEPT_LANGUAGE).any(|accepted| accepted != "*");
    let is_rebound = || names_languages() && has_a_public_name(head);
    let by_a_page =
        headers.contains_key(ORIGIN) || site.map_or_else(is_rebound, |site| site != b"none");
    if !by_a_page {
        return None;
    }
    let allowed = "requests of programs; a page's server has to ask for it";
    let refusal = Refusal::invalid("Origin", "a request of a web page", allowed);
    Some(problem_as(StatusCode::FORBIDDEN, &refusal, Map::new()))
}

/// Whether a site of the Internet could have this name: no address, no name of this machine, and no
/// name without a dot.
fn has_a_public_name(head: &Parts) -> bool {
    let host = head.headers.get(HOST).map(HeaderValue::as_bytes);
    let host = host.and_then(|host| Authority::try_from(host).ok());
    let Some(host) = host.as_ref().or(head.uri.authority()) else {
        return false;
    };
    let host = host.host().to_ascii_lowercase();
    let is_here = host == "localhost" || host.ends_with(".localhost");
    let is_address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
    host.contains('.') && !is_address && !is_here
}

/// A body has to be declared as JSON: what pages may send without asking first is not.
pub(crate) fn not_json(headers: &HeaderMap) -> Option<Response<Body>> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or("nothing");
    let bare = kind.split(';').next().unwrap_or_default().trim();
    if bare.eq_ignore_ascii_case("application/json") {
        return None;
    }
    let refusal = Refusal::invalid("Content-Type", hidden::shown(kind), "application/json");
    Some(problem_as(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        &refusal,
        Map::new(),
    ))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::get("/v1/leases");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_browser_under_a_public_name_is_a_page_and_a_program_or_an_address_is_none() {
        let languages = ("accept-language", "en");
        for host in [
            "evil.example",
            "Evil.Example:7420",
            "127.0.0.1.evil.example",
            "10.0.0.1.",
            "u@a.b",
        ] {
            assert!(
                by_a_page(&head(&[("host", host), languages])).is_some(),
                "{host}"
            );
            assert!(by_a_page(&head(&[("host", host)])).is_none(), "{host}");
            let any = [("host", host), ("accept-language", "*")];
            assert!(by_a_page(&head(&any)).is_none(), "{host}");
            let typed = [("host", host), languages, ("sec-fetch-site", "none")];
            assert!(by_a_page(&head(&typed)).is_none(), "{host}");
        }
        for host in [
            "127.0.0.1:7420",
            "[::1]:7420",
            "localhost:7420",
            "a.localhost",
            "node",
            "node:7420",
            "",
        ] {
            assert!(
                by_a_page(&head(&[("host", host), languages])).is_none(),
                "{host}"
            );
        }
    }

    #[test]
    fn one_host_and_one_coding_are_read() {
        let host = ("host", "node");
        let is_strange = |headers: &[(&str, &str)]| strange(&head(headers)).is_some();
        assert!(!is_strange(&[host]));
        assert!(is_strange(&[]));
        assert!(is_strange(&[host, ("host", "node")]));
        assert!(!is_strange(&[host, ("transfer-encoding", "Chunked")]));
        for coding in ["gzip, chunked", "chunked, chunked", "identity", ""] {
            assert!(
                is_strange(&[host, ("transfer-encoding", coding)]),
                "{coding}"
            );
        }
        let twice = [
            host,
            ("transfer-encoding", "chunked"),
            ("transfer-encoding", "chunked"),
        ];
        assert!(is_strange(&twice));
    }
}
