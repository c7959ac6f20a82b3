//! JSON of requests: read, freed of nulls, and searched for fields that a lease does not have.

use serde_json::{Map, Value};

use crate::lease::Lease;
use crate::options::FieldValidation;
use crate::status::{API_VERSION, Failure, KIND};

/// Fields beside those of an object's metadata that are kept: Kubernetes has them, too.
const IGNORED: [&str; 6] = [
    "selfLink",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "clusterName",
];

const METADATA: [&str; 10] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

const OWNER: [&str; 6] = [
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
];

const SPEC: [&str; 7] = [
    "holderIdentity",
    "leaseDurationSeconds",
    "acquireTime",
    "renewTime",
    "leaseTransitions",
    "strategy",
    "preferredHolder",
];

/// The most warnings of one answer.
const WARNINGS_MAX: usize = 16;

/// Reads one JSON object. 400 for anything else.
pub(crate) fn object(body: &[u8]) -> Result<Map<String, Value>, Failure> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Failure::bad_request("the body is not a JSON object")),
        Err(error) => Err(Failure::bad_request(format!(
            "the body is not JSON: {error}"
        ))),
    }
}

/// Takes out all members that are null: to Go they are absent.
pub(crate) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(without_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Reads a lease, whose kind is checked already; nulls are absent. 400 if a field has another type.
pub(crate) fn lease(mut object: Value) -> Result<Lease, Failure> {
    without_nulls(&mut object);
    check_objects(&object)?;
    serde_json::from_value(object).map_err(|error| cannot_be(&error.to_string()))
}

/// serde takes an array for an object, its members in the order of the fields; Kubernetes does not.
fn check_objects(object: &Value) -> Result<(), Failure> {
    let of = |name: &str| object.get(name);
    let owners = of("metadata").and_then(|of| of.get("ownerReferences"));
    let owners = owners.and_then(Value::as_array).into_iter().flatten();
    let parts = [Some(object), of("metadata"), of("spec")];
    let fine = parts
        .into_iter()
        .flatten()
        .chain(owners)
        .all(Value::is_object);
    fine.then_some(())
        .ok_or_else(|| cannot_be("an object is expected, and another value is there"))
}

/// 400 in the words of kube-apiserver.
pub(crate) fn cannot_be(why: &str) -> Failure {
    let message = format!("{KIND} in version \"v1\" cannot be handled as a {KIND}: {why}");
    Failure::bad_request(message)
}

/// 400 if the object says that it is another one than a lease; it may leave that out.
pub(crate) fn check_kind(api_version: &str, kind: &str) -> Result<(), Failure> {
    if !api_version.is_empty() && api_version != API_VERSION {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version \
             ({API_VERSION})"
        )));
    }
    if !kind.is_empty() && kind != KIND {
        let message = format!("{kind} in version \"v1\" cannot be handled as a {KIND}");
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

/// A member that is a text; empty if it is absent. 400 if it is something else.
pub(crate) fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a str, Failure> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Failure::bad_request(format!("{name} is not a text"))),
    }
}

/// What the client learns of fields that no lease has: warnings, or 400.
pub(crate) fn validate(
    object: &Map<String, Value>,
    validation: FieldValidation,
) -> Result<Vec<String>, Failure> {
    if validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    members(
        object,
        "",
        &[&["apiVersion", "kind", "metadata", "spec"]],
        &mut found,
    );
    if let Some(Value::Object(metadata)) = object.get("metadata") {
        members(metadata, "metadata.", &[&METADATA, &IGNORED], &mut found);
        if let Some(Value::Array(owners)) = metadata.get("ownerReferences") {
            for (at, owner) in owners.iter().enumerate() {
                if let Value::Object(owner) = owner {
                    let path = format!("metadata.ownerReferences[{at}].");
                    members(owner, &path, &[&OWNER], &mut found);
                }
            }
        }
    }
    if let Some(Value::Object(spec)) = object.get("spec") {
        members(spec, "spec.", &[&SPEC], &mut found);
    }
    if validation == FieldValidation::Strict && !found.is_empty() {
        let all = found.join(", ");
        return Err(cannot_be(&format!("strict decoding error: {all}")));
    }
    Ok(found)
}

fn members(object: &Map<String, Value>, path: &str, known: &[&[&str]], found: &mut Vec<String>) {
    for name in object.keys() {
        // `$patch` and its kin belong to patches.
        let fine =
            name.starts_with('$') || known.iter().any(|known| known.contains(&name.as_str()));
        if !fine && found.len() < WARNINGS_MAX {
            found.push(format!("unknown field \"{path}{name}\""));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(value: &Value, validation: FieldValidation) -> Result<Vec<String>, Failure> {
        validate(value.as_object().unwrap(), validation)
    }

    #[test]
    fn unknown_fields_are_found_with_their_path() {
        let value = json!({
            "metadata": {
                "labels": { "any": "x" },
                "managedFields": [{ "any": 1 }],
                "ownerReferences": [{ "uid": "u", "x": 1 }],
            },
            "spec": { "holder": "h" },
            "status": {},
        });
        let mut expected = vec![
            "unknown field \"metadata.ownerReferences[0].x\"".to_owned(),
            "unknown field \"spec.holder\"".to_owned(),
            "unknown field \"status\"".to_owned(),
        ];
        let mut found = checked(&value, FieldValidation::Warn).unwrap();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        let refused = checked(&value, FieldValidation::Strict).unwrap_err();
        assert_eq!(refused.code(), 400);
        assert!(
            refused.message.contains("strict decoding error"),
            "{refused:?}"
        );
        let ignored = checked(&value, FieldValidation::Ignore).unwrap();
        assert_eq!(ignored, Vec::<String>::new());
    }

    #[test]
    fn nulls_are_absent() {
        let value = json!({
            "metadata": { "name": "a", "creationTimestamp": null, "labels": null },
            "spec": { "holderIdentity": null, "renewTime": null },
        });
        let read = lease(value).unwrap();
        assert_eq!(read.metadata.name, "a");
        assert_eq!(read.spec, crate::lease::Spec::default());
        assert_eq!(lease(json!({ "spec": null })).unwrap(), Lease::default());
    }

    #[test]
    fn a_field_of_another_type_is_refused() {
        for value in [
            json!({ "spec": { "leaseDurationSeconds": "15" } }),
            json!({ "spec": { "leaseDurationSeconds": 4_294_967_296_u64 } }),
            json!({ "spec": { "renewTime": "now" } }),
            json!({ "metadata": { "labels": { "a": 1 } } }),
            json!({ "metadata": [] }),
            json!({ "spec": ["me", 15] }),
            json!({ "metadata": { "ownerReferences": [["v1", "Pod", "a", "u"]] } }),
        ] {
            let read = lease(value.clone());
            assert_eq!(read.unwrap_err().code(), 400, "{value}");
        }
    }
}
