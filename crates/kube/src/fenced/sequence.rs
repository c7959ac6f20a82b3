//! A fence with a number that grows from write to write, inside the object that is written.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, request};
use kube::client::Body;
use ringfence_client::FencingToken;
use serde_json::{Map, Value, json};

use super::refusal::Unsent;
use super::request::{is_connection, subresource};
use crate::TOKEN;
use crate::policy::STAMP;

/// The numbers of the writes of one grant.
#[derive(Debug, Default)]
pub(super) struct Numbers(AtomicU64);

impl Numbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Subresources with an object of their own, or with none, which is not the one that is stored.
const OWN_OBJECT: [&str; 4] = ["scale", "eviction", "binding", "token"];

/// Puts the stamp, and the mark if there is one, into the object that a write carries. What carries none is left alone:
/// deletions, connections, and subresources with objects of their own.
pub(super) fn put(
    parts: &mut request::Parts,
    body: Body,
    fence: &str,
    numbers: &Numbers,
    mark: Option<FencingToken>,
) -> Result<Body, Unsent> {
    let subresource = subresource(parts.uri.path());
    let own = subresource.is_some_and(|sub| OWN_OBJECT.contains(&sub));
    if parts.method == Method::DELETE || own || is_connection(parts) {
        return Ok(body);
    }
    // What kube sends is at hand; a stream of unknown length is no object.
    let bytes = body.collect_bytes().now_or_never().and_then(Result::ok);
    let bytes = bytes.ok_or(Unsent::Body("it is a stream"))?;
    let value = serde_json::from_slice(&bytes).map_err(|_| Unsent::Body("it is no JSON"))?;
    let mut annotations = vec![(STAMP, format!("{fence}.{}", numbers.next()))];
    annotations.extend(mark.map(|token| (TOKEN, token.to_string())));
    let sent = annotated(value, annotations)?;
    let sent = sent.to_string().into_bytes();
    parts.headers.remove(CONTENT_LENGTH);
    if !parts.headers.contains_key(CONTENT_TYPE) {
        let json = HeaderValue::from_static("application/json");
        parts.headers.insert(CONTENT_TYPE, json);
    }
    Ok(Body::from(sent))
}

/// The object, or the patch of one, with these annotations.
fn annotated(value: Value, put: Vec<(&str, String)>) -> Result<Value, Unsent> {
    match value {
        Value::Object(mut object) => {
            let metadata = object.entry("metadata").or_insert_with(nothing);
            let metadata = map(metadata)?;
            let annotations = metadata.entry("annotations").or_insert_with(nothing);
            // A patch may say that there shall be none: then there are these.
            if annotations.is_null() {
                *annotations = nothing();
            }
            let annotations = map(annotations)?;
            let put = put.into_iter();
            annotations.extend(put.map(|(name, text)| (name.to_owned(), text.into())));
            Ok(Value::Object(object))
        }
        // A JSON patch: an annotation is added to what is there, so there has to be some.
        Value::Array(mut steps) => {
            steps.extend(put.into_iter().map(|(name, text)| {
                let path = format!("/metadata/annotations/{}", name.replace('/', "~1"));
                json!({"op": "add", "path": path, "value": text})
            }));
            Ok(Value::Array(steps))
        }
        _ => Err(Unsent::Body("it is no object")),
    }
}

fn nothing() -> Value {
    Value::Object(Map::new())
}

fn map(value: &mut Value) -> Result<&mut Map<String, Value>, Unsent> {
    let no_map = Unsent::Body("its metadata or annotations are no object");
    value.as_object_mut().ok_or(no_map)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn sent(request: request::Builder, body: &str) -> Result<String, Unsent> {
        sent_with(None, request, body)
    }

    fn sent_with(
        mark: Option<FencingToken>,
        request: request::Builder,
        body: &str,
    ) -> Result<String, Unsent> {
        let body = Body::from(body.as_bytes().to_vec());
        let (mut parts, body) = request.body(body).unwrap().into_parts();
        let body = put(&mut parts, body, "a/b#7", &Numbers::default(), mark)?;
        let bytes = body.collect_bytes().now_or_never().unwrap().unwrap();
        Ok(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn objects_and_patches_get_the_stamp_and_keep_what_they_have() {
        let marks = r#""ringfence.io/stamp":"a/b#7.1""#;
        for (body, expected) in [
            (
                "{}",
                format!(r#"{{"metadata":{{"annotations":{{{marks}}}}}}}"#),
            ),
            (
                r#"{"metadata":{"name":"a","annotations":{"b":"c"}},"data":{}}"#,
                format!(
                    r#"{{"data":{{}},"metadata":{{"annotations":{{"b":"c",{marks}}},"name":"a"}}}}"#
                ),
            ),
            (
                r#"{"metadata":{"annotations":null}}"#,
                format!(r#"{{"metadata":{{"annotations":{{{marks}}}}}}}"#),
            ),
        ] {
            let sent: Value =
                serde_json::from_str(&sent(Request::patch("/a"), body).unwrap()).unwrap();
            let expected: Value = serde_json::from_str(&expected).unwrap();
            assert_eq!(sent, expected);
        }
        let steps: Value =
            serde_json::from_str(&sent(Request::patch("/a"), "[]").unwrap()).unwrap();
        assert_eq!(
            steps[0]["path"],
            "/metadata/annotations/ringfence.io~1stamp"
        );
        assert_eq!(steps[0]["value"], "a/b#7.1");
    }

    /// Whatever mark a caller had read is replaced.
    #[test]
    fn the_mark_goes_beside_the_stamp_where_the_client_writes_it() {
        let sent = |body: &str| -> Value {
            let sent = sent_with(FencingToken::new(7), Request::patch("/a"), body);
            serde_json::from_str(&sent.unwrap()).unwrap()
        };
        let both = json!({"ringfence.io/stamp": "a/b#7.1", "ringfence.io/token": "7"});
        for body in [
            "{}",
            r#"{"metadata":{"annotations":{"ringfence.io/token":"9","ringfence.io/stamp":"c#9.3"}}}"#,
            r#"{"metadata":{"annotations":{"ringfence.io/token":null}}}"#,
        ] {
            assert_eq!(sent(body)["metadata"]["annotations"], both, "{body}");
        }
        let removed = r#"[{"op":"remove","path":"/metadata/annotations/ringfence.io~1token"}]"#;
        let steps = sent(removed);
        let put = |name: &str, text: &str| {
            let path = format!("/metadata/annotations/ringfence.io~1{name}");
            json!({"op": "add", "path": path, "value": text})
        };
        let steps = steps.as_array().unwrap();
        assert_eq!(steps[1..], [put("stamp", "a/b#7.1"), put("token", "7")]);
    }

    #[test]
    fn what_has_no_place_for_a_number_is_left_alone_or_not_sent() {
        let scale = sent(Request::put("/apis/apps/v1/deployments/a/scale"), "{}");
        assert_eq!(scale.unwrap(), "{}");
        assert_eq!(sent(Request::delete("/a"), "").unwrap(), "");
        for body in ["", "metadata: {}", "3", r#"{"metadata":3}"#] {
            let refused = sent(Request::post("/a"), body);
            assert!(matches!(refused, Err(Unsent::Body(_))), "{body:?}");
        }
    }

    #[test]
    fn an_object_that_is_called_like_a_subresource_is_stamped() {
        let core = "/api/v1/namespaces/a";
        let apps = "/apis/apps/v1/namespaces/scale";
        let wide = "/apis/a.example/v1";
        for (path, expected) in [
            (format!("{core}/secrets/token"), None),
            (format!("{core}/configmaps/scale"), None),
            (format!("{apps}/deployments/scale"), None),
            (format!("{apps}/deployments"), None),
            ("/api/v1/namespaces/token".to_owned(), None),
            ("/api/v1/namespaces/a/status".to_owned(), None),
            (format!("{wide}/things/eviction"), None),
            (format!("{wide}/token"), None),
            (format!("{apps}/deployments/scale/scale"), Some("scale")),
            (format!("{core}/serviceaccounts/b/token"), Some("token")),
            (format!("{core}/pods/b/eviction/"), Some("eviction")),
            (format!("{core}/services/b/proxy/c/d"), Some("proxy")),
            (format!("{wide}/things/b/scale"), Some("scale")),
            (format!("{wide}/things/b/status"), Some("status")),
        ] {
            assert_eq!(subresource(&path), expected, "{path}");
            let sent = sent(Request::patch(&path), "{}").unwrap();
            let own = |sub: &str| OWN_OBJECT.contains(&sub) || sub == "proxy";
            let left_alone = expected.is_some_and(own);
            assert_eq!(sent == "{}", left_alone, "{path}: {sent}");
        }
    }

    #[test]
    fn numbers_grow_from_write_to_write() {
        let numbers = Numbers::default();
        assert_eq!((numbers.next(), numbers.next()), (1, 2));
    }
}
