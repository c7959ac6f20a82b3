//! What answers a client of buckets takes: of a size and within a time, without what it panics at, and
//! without the secrets of the request, which an odd store or a proxy before it may repeat.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use object_store::client::{HttpError, HttpErrorKind, HttpResponse, HttpResponseBody};
use serde_json::Value;
use tokio::time::timeout;

/// How long an answer may take, with the time in which the request is sent: a part of an upload at
/// 90 KB/s.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The longest answer that is no object, in bytes: a page of a list has 1,000 names of 1 KiB at most, and
/// each letter may take five bytes there.
pub(super) const ANSWER_BYTES_MAX: usize = 8 << 20;
/// The latest end of a credential, and the longest life of one, in seconds since 1970 or from now on: what
/// is added to the time of day has to be a time.
const SECONDS_MAX: u64 = 100_000_000_000;
/// Parts of a request that are not looked for in its answer: too short for a secret.
const SECRET_BYTES_MIN: usize = 8;
/// Headers of requests that prove who asks.
const PROVING: [&str; 5] = [
    "authorization",
    "x-amz-security-token",
    "x-aws-ec2-metadata-token",
    "x-identity-header",
    "secret",
];
/// Parts of addresses that do.
const PROVING_QUERY: [&str; 3] = ["sig=", "X-Amz-Signature=", "X-Amz-Security-Token="];

#[derive(Debug, thiserror::Error)]
#[error("nothing came for {0:?}, or not all of it")]
pub(super) struct Silent(pub(super) Duration);

#[derive(Debug, thiserror::Error)]
pub(super) enum Odd {
    #[error("the answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    #[error("the answer is neither a token nor credentials that a request can have")]
    NoCredential,
}

/// The secrets of a request, as they may come back.
pub(super) struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    pub(super) fn of<B>(request: &http::Request<B>) -> Self {
        let headers = PROVING
            .iter()
            .flat_map(|name| request.headers().get_all(*name));
        let mut parts: Vec<Vec<u8>> = headers
            .filter_map(|value| value.to_str().ok())
            .map(|value| proof_in(value).as_bytes().to_vec())
            .collect();
        for part in request.uri().query().unwrap_or_default().split('&') {
            let secret = PROVING_QUERY
                .iter()
                .find_map(|name| part.strip_prefix(name));
            parts.extend(secret.map(|secret| secret.as_bytes().to_vec()));
            parts.extend(secret.map(decoded));
        }
        parts.retain(|part| part.len() >= SECRET_BYTES_MIN);
        // The longest first: one may be a part of another one.
        parts.sort_by_key(|part| usize::MAX - part.len());
        parts.dedup();
        Self(parts)
    }

    /// The text without them.
    fn removed(&self, text: Bytes) -> Bytes {
        let has = |secret: &Vec<u8>| text.windows(secret.len()).any(|part| part == secret);
        if !self.0.iter().any(has) {
            return text;
        }
        let mut left = text.to_vec();
        for secret in &self.0 {
            let mut from = 0;
            while let Some(at) = left[from..]
                .windows(secret.len())
                .position(|part| part == secret)
            {
                left.splice(from + at..from + at + secret.len(), *b"***");
                from += at + 3;
            }
        }
        left.into()
    }
}

/// An answer that is no object, as a whole.
pub(super) async fn whole(
    answer: HttpResponse,
    path: &str,
    secrets: &Secrets,
) -> Result<HttpResponse, HttpError> {
    let (head, body) = answer.into_parts();
    let collected = timeout(ANSWER_MAX, collected(body)).await;
    let late = |_| HttpError::new(HttpErrorKind::Timeout, Silent(ANSWER_MAX));
    let bytes = collected.map_err(late)??;
    if head.status.is_success() && !fits(path, &bytes) {
        return Err(HttpError::new(HttpErrorKind::Decode, Odd::NoCredential));
    }
    // Answers that are credentials are those of requests that have shown none of the same.
    let bytes = secrets.removed(bytes.into());
    let body = Full::new(bytes).map_err(|never| match never {});
    Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
}

/// What proves something in a header: the signature, the token behind the scheme, or all of it.
fn proof_in(value: &str) -> &str {
    match (value.split_once("Signature="), value.split_once(' ')) {
        (Some((_, signature)), _) => signature,
        (None, Some((_, token))) => token,
        (None, None) => value,
    }
}

async fn collected(mut body: HttpResponseBody) -> Result<Vec<u8>, HttpError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(HttpError::new(HttpErrorKind::Decode, Odd::TooLong));
        }
    }
    Ok(bytes)
}

/// Whether the library can make a request of what a service of identities says at this path. It puts a
/// token and a role as they come into a header or an address.
fn fits(path: &str, answer: &[u8]) -> bool {
    let is_word = !answer.is_empty()
        && answer
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@_/-".contains(byte));
    if path.ends_with("/latest/api/token") || path.ends_with("/iam/security-credentials/") {
        return is_word;
    }
    match answer.trim_ascii_start().first() {
        Some(b'{') => match serde_json::from_slice(answer) {
            Ok(answer) => is_sound(None, &answer),
            // It says so itself.
            Err(_) => true,
        },
        Some(b'<') => !std::str::from_utf8(answer).is_ok_and(has_torn_text),
        _ => true,
    }
}

/// Whether strings have no control characters, and times are times.
fn is_sound(name: Option<&str>, value: &Value) -> bool {
    let is_time = name.is_some_and(|name| name.to_ascii_lowercase().contains("expire"));
    match value {
        Value::String(text) => {
            let seconds = text.parse::<u64>().unwrap_or_default();
            let is_late = is_time && seconds > SECONDS_MAX;
            !text.contains(char::is_control) && !is_late
        }
        Value::Number(number) => {
            !is_time
                || number
                    .as_u64()
                    .is_some_and(|seconds| seconds <= SECONDS_MAX)
        }
        Value::Object(members) => members
            .iter()
            .all(|(name, value)| is_sound(Some(name), value)),
        Value::Array(values) => values.iter().all(|value| is_sound(name, value)),
        Value::Null | Value::Bool(_) => true,
    }
}

/// Whether a text between tags has a control character in it: a credential of the token service may.
fn has_torn_text(document: &str) -> bool {
    let is_of_credentials =
        document.contains("<SessionToken>") || document.contains("<SecretAccessKey>");
    is_of_credentials
        && document.split('>').any(|part| {
            let text = part.split('<').next().unwrap_or_default().trim();
            text.contains(char::is_control)
        })
}

/// A part of an address without `%XX`.
pub(super) fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let digits = [ahead.next(), ahead.next()];
        let digit = |of: Option<u8>| of.and_then(|of| char::from(of).to_digit(16));
        match (byte, digit(digits[0]), digit(digits[1])) {
            (b'%', Some(high), Some(low)) => {
                // Two digits make a byte.
                decoded.push((high * 16 + low) as u8);
                bytes = ahead;
            }
            _ => decoded.push(byte),
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    /// What is left of an answer whose body comes in these pieces.
    async fn left(pieces: impl stream::Stream<Item = Bytes> + Send + Sync + 'static) -> String {
        use futures_util::StreamExt as _;
        let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        let body = StreamBody::new(Box::pin(frames)).map_err(|never| match never {});
        let answer = HttpResponse::new(HttpResponseBody::new(body));
        let secrets = Secrets(Vec::new());
        match whole(answer, "/b/k", &secrets).await {
            Ok(answer) => match answer.into_body().bytes().await {
                Ok(bytes) => format!("{} bytes", bytes.len()),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_an_end() {
        let piece = Bytes::from(vec![b'x'; 1 << 20]);
        let pieces = |count| stream::iter(vec![piece.clone(); count]);
        assert_eq!(left(pieces(8)).await, "8388608 bytes");
        assert!(left(pieces(9)).await.contains("more than 8388608 bytes"));
        // A byte each second is none either.
        let dripping = stream::unfold((), |()| async {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            Some((Bytes::from_static(b"x"), ()))
        });
        assert!(left(dripping).await.contains("60s"));
    }

    #[test]
    fn what_a_request_cannot_have_is_no_credential() {
        const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
        for (path, answer, expected) in [
            ("/latest/api/token", "AQAEA-x_y==", true),
            ("/latest/api/token", "a\nb", false),
            ("/of/a/proxy/latest/api/token", "a b", false),
            ("/latest/api/token", "", false),
            (ROLES, "node.role@x", true),
            (ROLES, "a b", false),
            (ROLES, "<html></html>", false),
            (
                "/x",
                r#"{"Token":"a","Expiration":"2026-11-27T00:00:00Z"}"#,
                true,
            ),
            ("/x", "{\"Token\":\"a\\nb\"}", false),
            ("/x", r#"{"access_token":"t","expires_in":3599}"#, true),
            ("/x", r#"{"expires_in":18446744073709551615}"#, false),
            ("/x", r#"{"expires_in":-1}"#, false),
            ("/x", r#"{"expires_on":"18446744073709551615"}"#, false),
            ("/x", r#"{"expires_on":"1795798800"}"#, true),
            ("/x", "{", true),
            ("/x", "<A>\n <SessionToken>a</SessionToken>\n</A>", true),
            ("/x", "<A><SessionToken>a\nb</SessionToken></A>", false),
            (
                "/b/k",
                "<ListBucketResult>\n<Key>a\nb</Key></ListBucketResult>",
                true,
            ),
            ("/b/k", "", true),
        ] {
            assert_eq!(fits(path, answer.as_bytes()), expected, "{path}: {answer}");
        }
    }

    #[test]
    fn secrets_of_a_request_are_removed_from_what_comes_back() {
        let request = http::Request::get("http://h/b/k?sv=1&sig=ab%2Bcdefgh")
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/x, Signature=0123456789",
            )
            .header("x-amz-security-token", "hunter2session")
            .body(())
            .unwrap_or_default();
        let echoed = "hunter2session; Signature=0123456789; ab%2Bcdefgh; ab+cdefgh; hunter2sessio";
        let left = Secrets::of(&request).removed(Bytes::from_static(echoed.as_bytes()));
        assert_eq!(left, "***; Signature=***; ***; ***; hunter2sessio");
        assert_eq!(proof_in("Bearer hunter2=="), "hunter2==");
    }
}
