//! A refusal as a response.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response};

use super::status::{DOMAIN, RETRY_AFTER_SECONDS, base64, encode, percent};
use super::{STALE_HEADER, TurnedAway};
use crate::{Fence, Refused};

impl TurnedAway {
    /// The response to an HTTP request: the status, and a body in JSON.
    #[must_use]
    pub fn http_response(&self) -> Response<String> {
        let mut response = Response::new(self.json());
        *response.status_mut() = self.http_status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.is_retryable() {
            headers.insert(
                RETRY_AFTER,
                HeaderValue::from(u16::from(RETRY_AFTER_SECONDS)),
            );
        }
        self.tell_stale(headers);
        response
    }

    /// The status of a gRPC response as its headers: `tonic::Status::from_header_map` makes a
    /// status of them.
    #[must_use]
    pub fn grpc_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(
            "grpc-status",
            HeaderValue::from(u16::from(self.grpc_code())),
        );
        put_text(&mut headers, "grpc-message", &percent(&self.to_string()));
        put_text(
            &mut headers,
            "grpc-status-details-bin",
            &base64(&encode(self)),
        );
        self.tell_stale(&mut headers);
        headers
    }

    fn tell_stale(&self, headers: &mut HeaderMap) {
        if let Self::Refused(Refused::StaleToken { name, offered, .. }) = self {
            let fence = Fence::new(name.clone(), *offered);
            put_text(headers, STALE_HEADER, &fence.to_string());
        }
    }

    fn json(&self) -> String {
        let mut details = String::new();
        for (key, value) in self.metadata() {
            if !details.is_empty() {
                details.push(',');
            }
            details.push_str(&format!("{}:{}", quoted(key), quoted(&value)));
        }
        format!(
            "{{\"domain\":{},\"reason\":{},\"message\":{},\"metadata\":{{{details}}}}}",
            quoted(DOMAIN),
            quoted(self.reason()),
            quoted(&self.to_string()),
        )
    }
}

/// The whole response to a gRPC request: a status without messages.
pub(super) fn grpc_response<B>(away: &TurnedAway, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.headers_mut() = away.grpc_headers();
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, grpc);
    response
}

/// Inserts what is ASCII by its making: names, digits, and what was encoded for it.
fn put_text(headers: &mut HeaderMap, name: &'static str, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_texts_are_escaped() {
        assert_eq!(quoted("a\"b\\c\nd\u{7f}ä"), r#""a\"b\\c\u000ad\u007fä""#);
    }
}
