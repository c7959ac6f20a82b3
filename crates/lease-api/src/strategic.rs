//! Patches of two sorts on JSON: RFC 7386, and the strategic merge patch of Kubernetes as far as a
//! Lease needs it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::status::Failure;

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const FROM_LIST: &str = "$deleteFromPrimitiveList/";

/// The one list of a Lease whose members are merged one by one, and the field that tells them apart.
const OWNERS: (&str, &str) = ("ownerReferences", "uid");

/// RFC 7386: objects merge, null removes, all else replaces.
pub(crate) fn merge_plain(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(patch) => {
                let mut inner = taken(target, name);
                merge_plain(&mut inner, patch);
                target.insert(name.clone(), Value::Object(inner));
            }
            other => {
                target.insert(name.clone(), other.clone());
            }
        }
    }
}

/// The strategic merge patch: as [`merge_plain`], with directives, and lists of owners merge by uid.
/// 400 for a directive that is none.
pub(crate) fn merge(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Failure> {
    match directive(patch)? {
        Some(Directive::Delete) => {
            target.clear();
            return Ok(());
        }
        Some(Directive::Replace) => target.clear(),
        Some(Directive::Merge) | None => {}
    }
    for (name, value) in patch.iter().filter(|(name, _)| !is_directive(name)) {
        match value {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(patch) if directive(patch)? == Some(Directive::Delete) => {
                target.remove(name);
            }
            Value::Object(patch) => {
                let mut inner = taken(target, name);
                merge(&mut inner, patch)?;
                target.insert(name.clone(), Value::Object(inner));
            }
            Value::Array(patch) if name == OWNERS.0 => {
                let owners = merge_list(target.get(name), patch)?;
                target.insert(name.clone(), Value::Array(owners));
            }
            other => {
                target.insert(name.clone(), other.clone());
            }
        }
    }
    match patch.get(RETAIN) {
        None => Ok(()),
        Some(Value::Array(kept)) => {
            let kept: BTreeSet<&str> = kept.iter().filter_map(Value::as_str).collect();
            target.retain(|name, _| kept.contains(name.as_str()));
            Ok(())
        }
        Some(_) => Err(Failure::bad_request("$retainKeys is not a list")),
    }
}

/// Takes the object of a member out; an empty one if it holds something else.
fn taken(target: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    match target.remove(name) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directive {
    Delete,
    Replace,
    Merge,
}

fn directive(patch: &Map<String, Value>) -> Result<Option<Directive>, Failure> {
    let Some(directive) = patch.get(DIRECTIVE) else {
        return Ok(None);
    };
    match directive.as_str() {
        Some("delete") => Ok(Some(Directive::Delete)),
        Some("replace") => Ok(Some(Directive::Replace)),
        Some("merge") => Ok(Some(Directive::Merge)),
        _ => Err(Failure::bad_request(
            "$patch is none of delete, replace and merge",
        )),
    }
}

/// The order of lists means nothing here, and the one list of texts is always empty.
fn is_directive(name: &str) -> bool {
    name == DIRECTIVE
        || name == RETAIN
        || name.starts_with(SET_ORDER)
        || name.starts_with(FROM_LIST)
}

fn merge_list(present: Option<&Value>, patch: &[Value]) -> Result<Vec<Value>, Failure> {
    let mut replaced = false;
    let mut elements = Vec::with_capacity(patch.len());
    for element in patch {
        let Value::Object(element) = element else {
            return Err(Failure::bad_request(
                "a member of ownerReferences is not an object",
            ));
        };
        let directive = directive(element)?;
        match element.get(OWNERS.1) {
            Some(Value::String(uid)) => elements.push((uid.as_str(), directive, element)),
            // It speaks of the list, and not of a member.
            None if directive == Some(Directive::Replace) => replaced = true,
            _ => {
                let why =
                    "a member of ownerReferences has no uid that is a text, by which they merge";
                return Err(Failure::bad_request(why));
            }
        }
    }
    let present = present.and_then(Value::as_array).filter(|_| !replaced);
    let present: &[Value] = present.map_or(&[], Vec::as_slice);
    // A member that is deleted leaves its place empty, so that the places of the others stay.
    let mut list: Vec<Option<Value>> = present.iter().cloned().map(Some).collect();
    let mut places = BTreeMap::new();
    for (at, owner) in present.iter().enumerate() {
        if let Some(uid) = owner.get(OWNERS.1).and_then(Value::as_str) {
            places.entry(uid).or_insert(at);
        }
    }
    for (uid, directive, element) in elements {
        if directive == Some(Directive::Delete) {
            if let Some(at) = places.remove(uid) {
                list[at] = None;
            }
            continue;
        }
        let at = *places.entry(uid).or_insert_with(|| {
            list.push(Some(Value::Object(Map::new())));
            list.len() - 1
        });
        if let Some(Value::Object(owner)) = &mut list[at] {
            merge(owner, element)?;
        }
    }
    Ok(list.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(mut target: Value, patch: &Value) -> Result<Value, Failure> {
        let object = target.as_object_mut().unwrap();
        merge(object, patch.as_object().unwrap())?;
        Ok(target)
    }

    #[test]
    fn the_examples_of_rfc_7386_hold() {
        for (target, patch, expected) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (
                json!({"a":"b","b":"c"}),
                json!({"a":null}),
                json!({"b":"c"}),
            ),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
            (
                json!({"a":{"b":"c"}}),
                json!({"a":{"b":"d","c":null}}),
                json!({"a":{"b":"d"}}),
            ),
            (
                json!({"a":"foo"}),
                json!({"a":{"b":1,"c":null}}),
                json!({"a":{"b":1}}),
            ),
            (
                json!({}),
                json!({"a":{"bb":{"ccc":null}}}),
                json!({"a":{"bb":{}}}),
            ),
        ] {
            let mut target = target;
            merge_plain(target.as_object_mut().unwrap(), patch.as_object().unwrap());
            assert_eq!(target, expected);
        }
    }

    #[test]
    fn owners_merge_by_uid() {
        let present =
            json!({ "ownerReferences": [{"uid":"1","name":"a"}, {"uid":"2","name":"b"}] });
        let patch = json!({
            "$setElementOrder/ownerReferences": [{"uid":"1"}],
            "ownerReferences": [
                {"uid":"1","name":"c"}, {"uid":"2","$patch":"delete"},
                {"uid":"3","name":"d"}, {"uid":"4","$patch":"delete"},
            ],
        });
        let expected =
            json!({ "ownerReferences": [{"uid":"1","name":"c"}, {"uid":"3","name":"d"}] });
        assert_eq!(merged(present.clone(), &patch).unwrap(), expected);
        let patch = json!({ "ownerReferences": [{"$patch":"replace"}, {"uid":"9"}] });
        let expected = json!({ "ownerReferences": [{"uid":"9"}] });
        assert_eq!(merged(present, &patch).unwrap(), expected);
    }

    /// It holds up the keep-alives of others for as long as it works.
    #[test]
    fn many_members_cost_no_more_for_each_than_few() {
        let owners = |members: usize| -> Vec<Value> {
            let each = (0..members).map(|at| json!({ "uid": at.to_string() }));
            each.collect()
        };
        let names = |members: usize| -> Map<String, Value> {
            let each = (0..members).map(|at| (at.to_string(), Value::Bool(true)));
            each.collect()
        };
        let many = 50_000;
        let patch = json!({ "ownerReferences": owners(many) });
        let list = merged(json!({ "ownerReferences": owners(many) }), &patch).unwrap();
        assert_eq!(list["ownerReferences"].as_array().unwrap().len(), many);
        let deleted: Vec<Value> = (0..many)
            .map(|at| json!({ "uid": at.to_string(), "$patch": "delete" }))
            .collect();
        let patch = json!({ "ownerReferences": deleted });
        assert_eq!(merged(list, &patch).unwrap()["ownerReferences"], json!([]));
        let kept: Vec<String> = (0..many).map(|at| at.to_string()).collect();
        let patch = json!({ "$retainKeys": kept });
        let left = merged(Value::Object(names(many)), &patch).unwrap();
        assert_eq!(left.as_object().unwrap().len(), many);
    }

    #[test]
    fn directives_replace_delete_and_retain() {
        let present = || json!({ "m": {"a":1,"b":2}, "s": {"x":1} });
        let of = |patch| merged(present(), &patch).unwrap();
        let replaced = of(json!({ "m": {"$patch":"replace","c":3} }));
        assert_eq!(replaced["m"], json!({"c":3}));
        assert_eq!(
            of(json!({ "m": {"$patch":"delete"} })),
            json!({ "s": {"x":1} })
        );
        let retained = of(json!({ "m": {"$retainKeys":["b","c"],"c":3} }));
        assert_eq!(retained["m"], json!({"b":2,"c":3}));
        for wrong in [
            json!({ "m": {"$patch":"x"} }),
            json!({ "m": {"$retainKeys":1} }),
            json!({ "ownerReferences": [{"name":"a"}] }),
            json!({ "ownerReferences": ["a"] }),
            json!({ "ownerReferences": [{"uid":1}] }),
        ] {
            assert_eq!(merged(present(), &wrong).unwrap_err().code(), 400);
        }
    }
}
