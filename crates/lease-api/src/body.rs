//! Bodies of requests: which format, which kind, and whether they fit the path.

use serde_json::{Map, Value};

use crate::fields;
use crate::lease::Lease;
use crate::options::{DeleteOptions, FieldValidation};
use crate::status::Failure;
use crate::valid::settle;
use crate::wire;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What `Content-Type` may say of a whole object.
const ACCEPTED: [&str; 2] = [JSON, PROTOBUF];

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The namespace of the path.
    pub namespace: &'a str,
    /// The name of the path; `None` for a create, whose body says it.
    pub name: Option<&'a str>,
}

/// A lease that a request brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// With the namespace and the name of the path.
    pub lease: Lease,
    /// One each for the header `Warning`: see `shown::warning`.
    pub warnings: Vec<String>,
}

/// The media type of a `Content-Type`, without parameters and in lower case.
pub(crate) fn media_type(content_type: Option<&str>) -> String {
    let bare = content_type.unwrap_or_default().split(';').next();
    bare.unwrap_or_default().trim().to_ascii_lowercase()
}

/// 413 above the limit.
pub(crate) fn check_size(body: &[u8], limit: usize) -> Result<(), Failure> {
    let fits = body.len() <= limit;
    fits.then_some(()).ok_or_else(|| Failure::too_large(limit))
}

/// Reads the lease of a create or an update. `limit`: the most bytes of the body.
///
/// 400: not what `Content-Type` says, another kind, or another name than the path's. 413: above the
/// limit. 415: another format. 422: a value that no lease may have.
pub fn lease(
    content_type: Option<&str>,
    body: &[u8],
    limit: usize,
    validation: FieldValidation,
    target: Target<'_>,
) -> Result<Parsed, Failure> {
    check_size(body, limit)?;
    let (mut lease, mut warnings) = match media_type(content_type).as_str() {
        "" | JSON => from_json(body, validation)?,
        PROTOBUF => (from_protobuf(body)?, Vec::new()),
        _ => return Err(Failure::unsupported_media_type(&ACCEPTED)),
    };
    place(&mut lease, target)?;
    warnings.extend(settle(&mut lease)?);
    Ok(Parsed { lease, warnings })
}

fn from_json(body: &[u8], validation: FieldValidation) -> Result<(Lease, Vec<String>), Failure> {
    let object = fields::object(body)?;
    fields::check_kind(
        fields::text(&object, "apiVersion")?,
        fields::text(&object, "kind")?,
    )?;
    let warnings = fields::validate(&object, validation)?;
    let lease = fields::lease(Value::Object(object))?;
    Ok((lease, warnings))
}

fn from_protobuf(body: &[u8]) -> Result<Lease, Failure> {
    let envelope = wire::open(body).map_err(Failure::bad_request)?;
    fields::check_kind(&envelope.api_version, &envelope.kind)?;
    wire::lease(&envelope.raw).map_err(|why| fields::cannot_be(&why))
}

/// Gives the lease the namespace and the name of the path. 400 if it has others of its own.
pub(crate) fn place(lease: &mut Lease, target: Target<'_>) -> Result<(), Failure> {
    let of = &mut lease.metadata;
    if of.namespace.is_empty() {
        target.namespace.clone_into(&mut of.namespace);
    } else if of.namespace != target.namespace {
        return Err(Failure::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the request \
             ({} is not {})",
            of.namespace, target.namespace
        )));
    }
    let Some(name) = target.name else {
        return Ok(());
    };
    if of.name.is_empty() {
        let message = "the name of the object (based on URL) was undeterminable: name must be \
                       provided";
        return Err(Failure::bad_request(message));
    }
    if of.name != name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            of.name
        )));
    }
    Ok(())
}

/// Reads the options of a delete; those of the path count where the body has no bytes.
///
/// 400, 413 and 415 as of [`lease`]. 422: a value that is none.
pub fn delete_options(
    content_type: Option<&str>,
    body: &[u8],
    limit: usize,
    of_path: DeleteOptions,
) -> Result<DeleteOptions, Failure> {
    check_size(body, limit)?;
    if body.is_empty() {
        of_path.check()?;
        return Ok(of_path);
    }
    let mut options = match media_type(content_type).as_str() {
        "" | JSON => {
            let object = fields::object(body)?;
            check_options(
                fields::text(&object, "apiVersion")?,
                fields::text(&object, "kind")?,
            )?;
            options_of(&object)?
        }
        PROTOBUF => {
            let envelope = wire::open(body).map_err(Failure::bad_request)?;
            check_options(&envelope.api_version, &envelope.kind)?;
            wire::delete_options(&envelope.raw).map_err(Failure::bad_request)?
        }
        _ => return Err(Failure::unsupported_media_type(&ACCEPTED)),
    };
    // A rehearsal that one of the two asks for never becomes a deletion.
    options.dry_run.extend(of_path.dry_run);
    options.check()?;
    Ok(options)
}

/// The options are of every group.
fn check_options(api_version: &str, kind: &str) -> Result<(), Failure> {
    let fine = (kind.is_empty() || kind == "DeleteOptions")
        && (api_version.is_empty() || api_version.split('/').next_back() == Some("v1"));
    fine.then_some(()).ok_or_else(|| {
        let message =
            format!("{kind} in version {api_version:?} cannot be handled as DeleteOptions");
        Failure::bad_request(message)
    })
}

fn options_of(object: &Map<String, Value>) -> Result<DeleteOptions, Failure> {
    let wrong =
        |name: &str| Failure::bad_request(format!("{name} of DeleteOptions has another type"));
    let owned = |object: &Map<String, Value>, name: &str| {
        let text = fields::text(object, name)?.to_owned();
        Ok::<_, Failure>(Some(text).filter(|text| !text.is_empty()))
    };
    let none = Map::new();
    let preconditions = match object.get("preconditions") {
        None | Some(Value::Null) => &none,
        Some(Value::Object(preconditions)) => preconditions,
        Some(_) => return Err(wrong("preconditions")),
    };
    let grace_period_seconds = match object.get("gracePeriodSeconds") {
        None | Some(Value::Null) => None,
        Some(value) => Some(value.as_i64().ok_or_else(|| wrong("gracePeriodSeconds"))?),
    };
    let dry_run = match object.get("dryRun") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(values)) => {
            let texts = values.iter().map(|value| value.as_str().map(str::to_owned));
            let texts: Option<Vec<String>> = texts.collect();
            texts.ok_or_else(|| wrong("dryRun"))?
        }
        Some(_) => return Err(wrong("dryRun")),
    };
    Ok(DeleteOptions {
        grace_period_seconds,
        uid: owned(preconditions, "uid")?,
        resource_version: owned(preconditions, "resourceVersion")?,
        propagation_policy: owned(object, "propagationPolicy")?,
        dry_run,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::lease::fixtures::held;
    use crate::status::API_VERSION;
    use crate::wire::fixtures::{encoded, encoded_options, sealed};

    const LIMIT: usize = 1 << 16;
    const TARGET: Target<'_> = Target {
        namespace: "shop",
        name: Some("leader"),
    };

    fn put(content_type: &str, body: &[u8]) -> Result<Parsed, Failure> {
        lease(
            Some(content_type),
            body,
            LIMIT,
            FieldValidation::Warn,
            TARGET,
        )
    }

    fn code(content_type: &str, body: impl ToString) -> u16 {
        put(content_type, body.to_string().as_bytes()).map_or_else(|no| no.code(), |_| 200)
    }

    #[test]
    fn json_and_protobuf_say_the_same() {
        let json = serde_json::to_vec(&held().shown()).unwrap();
        assert_eq!(
            put("application/json; charset=utf-8", &json).unwrap().lease,
            held()
        );
        let raw = sealed(API_VERSION, "Lease", encoded(&held()));
        assert_eq!(put(PROTOBUF, &raw).unwrap().lease, held());
    }

    #[test]
    fn other_formats_are_refused() {
        for kind in ["application/cbor", "application/yaml", "text/plain", "x"] {
            assert_eq!(code(kind, "{}"), 415, "{kind}");
        }
        let long = vec![b' '; LIMIT + 1];
        assert_eq!(put(JSON, &long).unwrap_err().code(), 413);
    }

    #[test]
    fn an_object_fits_its_path() {
        let with = |metadata: Value| code(JSON, json!({ "metadata": metadata }));
        assert_eq!(with(json!({ "name": "leader" })), 200);
        assert_eq!(with(json!({ "name": "leader", "namespace": "shop" })), 200);
        assert_eq!(with(json!({})), 400);
        assert_eq!(with(json!({ "name": "other" })), 400);
        assert_eq!(with(json!({ "name": "leader", "namespace": "x" })), 400);
        assert_eq!(
            with(json!({ "name": "leader", "finalizers": ["a/b"] })),
            422
        );
        assert_eq!(with(json!({ "name": "leader", "generateName": "a-" })), 422);
    }

    #[test]
    fn another_kind_is_refused() {
        let of = |version: &str, kind: &str| {
            let metadata = json!({ "name": "leader" });
            code(
                JSON,
                json!({ "apiVersion": version, "kind": kind, "metadata": metadata }),
            )
        };
        assert_eq!(of(API_VERSION, "Lease"), 200);
        assert_eq!(of("", ""), 200);
        assert_eq!(of("coordination.k8s.io/v1beta1", "Lease"), 400);
        assert_eq!(of(API_VERSION, "Pod"), 400);
        let raw = sealed("v1", "Pod", encoded(&held()));
        assert_eq!(put(PROTOBUF, &raw).unwrap_err().code(), 400);
    }

    #[test]
    fn a_create_names_its_lease_in_the_body() {
        let target = Target {
            name: None,
            ..TARGET
        };
        let create = |body: Value| {
            let body = body.to_string();
            lease(
                None,
                body.as_bytes(),
                LIMIT,
                FieldValidation::Strict,
                target,
            )
        };
        let created = create(json!({ "metadata": { "name": "a" } })).unwrap();
        assert_eq!(created.lease.metadata.namespace, "shop");
        assert_eq!(create(json!({})).unwrap_err().code(), 422);
        assert_eq!(create(json!({ "x": 1 })).unwrap_err().code(), 400);
    }

    #[test]
    fn options_of_a_delete_are_read_from_both_formats() {
        let expected = DeleteOptions {
            grace_period_seconds: Some(0),
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            propagation_policy: Some("Background".to_owned()),
            dry_run: vec!["All".to_owned()],
        };
        let json = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
            "preconditions": { "uid": "u", "resourceVersion": "7" },
            "propagationPolicy": "Background", "dryRun": ["All"],
        });
        let json = json.to_string();
        let none = DeleteOptions::default;
        let read = delete_options(Some(JSON), json.as_bytes(), LIMIT, none()).unwrap();
        assert_eq!(read, expected);
        let raw = sealed(API_VERSION, "DeleteOptions", encoded_options(&expected));
        let read = delete_options(Some(PROTOBUF), &raw, LIMIT, none()).unwrap();
        assert_eq!(read, expected);
        assert_eq!(
            delete_options(None, b"", LIMIT, expected.clone()).unwrap(),
            expected
        );
        let rehearsed = delete_options(None, b"{}", LIMIT, expected).unwrap();
        assert!(rehearsed.is_dry_run());
        let other = delete_options(Some(JSON), br#"{"dryRun":["x"]}"#, LIMIT, none());
        assert_eq!(other.unwrap_err().code(), 422);
    }

    proptest! {
        #[test]
        fn no_body_is_a_panic(body in proptest::collection::vec(any::<u8>(), 0..128)) {
            put(JSON, &body).ok();
            put(PROTOBUF, &body).ok();
            put(PROTOBUF, &sealed(API_VERSION, "Lease", body.clone())).ok();
            delete_options(None, &body, LIMIT, DeleteOptions::default()).ok();
            let raw = sealed("v1", "DeleteOptions", body);
            delete_options(Some(PROTOBUF), &raw, LIMIT, DeleteOptions::default()).ok();
        }

        #[test]
        fn a_broken_body_is_refused_or_read(at in any::<proptest::sample::Index>(), by in 1..=255_u8) {
            let mut json = serde_json::to_vec(&held().shown()).unwrap();
            let place = at.index(json.len());
            json[place] ^= by;
            put(JSON, &json).ok();
            let mut raw = sealed(API_VERSION, "Lease", encoded(&held()));
            let place = at.index(raw.len());
            raw[place] ^= by;
            put(PROTOBUF, &raw).ok();
        }
    }
}
