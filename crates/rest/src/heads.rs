//! What the head of a request says of its caller, and what two readers could take differently in it.

use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
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

pub(crate) fn values<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a HeaderValue> + use<'a> {
    headers.get_all(name).into_iter()
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
pub(crate) mod tests {
    use http::Request;

    use super::*;

    pub(crate) fn head(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::get("/v1/leases");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
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
