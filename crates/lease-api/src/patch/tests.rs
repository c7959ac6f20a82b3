//! Patches as clients send them.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::lease::fixtures::held;
use crate::time::MicroTime;

const LIMIT: usize = 1 << 16;

fn options(media: &str) -> WriteOptions {
    let manager = if media == APPLY { "test" } else { "" };
    WriteOptions {
        field_manager: manager.to_owned(),
        ..WriteOptions::default()
    }
}

fn read(media: &str, body: &[u8]) -> Result<Patch, Failure> {
    Patch::read(Some(media), body, LIMIT, &options(media))
}

fn patched(media: &str, body: &Value, holding: bool) -> Result<Lease, Failure> {
    let patch = read(media, body.to_string().as_bytes())?;
    patch.apply(&held(), holding).map(|patched| patched.lease)
}

fn code(media: &str, body: &Value) -> u16 {
    patched(media, body, false).map_or_else(|no| no.code(), |_| 200)
}

#[test]
fn a_merge_patch_changes_what_it_names() {
    // As kube-leader-election renews: with neither holder nor version.
    let renewed = json!({ "spec": { "renewTime": "2030-01-01T00:00:00.000000Z" } });
    let lease = patched(MERGE, &renewed, true).unwrap();
    let mut expected = held();
    expected.spec.renew_time = MicroTime::parse("2030-01-01T00:00:00Z");
    assert_eq!(lease, expected);
    let noted = json!({ "metadata": { "annotations": { "note": null, "x": "y" } } });
    let lease = patched(MERGE, &noted, false).unwrap();
    assert_eq!(lease.spec, held().spec);
    assert!(!lease.metadata.annotations.contains_key("note"));
    assert_eq!(lease.metadata.annotations["x"], "y");
}

#[test]
fn a_version_of_its_own_is_the_precondition() {
    let plain = read(MERGE, br#"{"metadata":{"labels":{"a":"b"}}}"#).unwrap();
    assert!(!plain.binds());
    let lease = plain.apply(&held(), false).unwrap().lease;
    assert_eq!(lease.metadata.version().unwrap(), Some(41));
    for media in [MERGE, STRATEGIC, APPLY] {
        let bound = read(media, br#"{"metadata":{"resourceVersion":"40","uid":"z"}}"#).unwrap();
        assert!(bound.binds(), "{media}");
        let metadata = bound.apply(&held(), false).unwrap().lease.metadata;
        assert_eq!(metadata.version().unwrap(), Some(40), "{media}");
        assert_eq!(metadata.uid.as_deref(), Some("z"), "{media}");
    }
    let set = br#"[{"op":"replace","path":"/metadata/resourceVersion","value":"40"}]"#;
    assert!(read(JSON, set).unwrap().binds());
    let test = br#"[{"op":"test","path":"/metadata/resourceVersion","value":"41"}]"#;
    assert!(!read(JSON, test).unwrap().binds());
    let removed = json!({ "metadata": { "resourceVersion": null, "uid": null, "name": null } });
    assert_eq!(patched(MERGE, &removed, false).unwrap(), held());
}

#[test]
fn another_lease_or_kind_is_refused() {
    for body in [
        json!({ "metadata": { "name": "other" } }),
        json!({ "metadata": { "namespace": "other" } }),
        json!({ "kind": "Pod" }),
        json!({ "apiVersion": "v1" }),
        json!({ "spec": { "leaseDurationSeconds": "x" } }),
        json!({ "metadata": 1 }),
    ] {
        for media in [MERGE, STRATEGIC, APPLY] {
            assert_eq!(code(media, &body), 400, "{media} {body}");
        }
    }
    for body in [
        json!({ "metadata": { "finalizers": ["a/b"] } }),
        json!({ "spec": { "leaseDurationSeconds": 0 } }),
    ] {
        for media in [MERGE, STRATEGIC, APPLY] {
            assert_eq!(code(media, &body), 422, "{media} {body}");
        }
    }
}

#[test]
fn a_strategic_patch_of_kubectl_is_applied() {
    let body = json!({
        "metadata": {
            "$setElementOrder/ownerReferences": [{ "uid": "u-1" }],
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}\n" },
            "ownerReferences": [{ "uid": "u-1", "$patch": "delete" }],
        },
        "spec": { "leaseDurationSeconds": 20 },
    });
    let lease = patched(STRATEGIC, &body, false).unwrap();
    assert_eq!(lease.metadata.owner_references, []);
    assert_eq!(lease.metadata.annotations.len(), 3);
    assert_eq!(lease.spec.lease_duration_seconds, Some(20));
    assert_eq!(lease.spec.holder(), Some("pod-1_a"));
}

#[test]
fn unknown_fields_of_the_result_are_refused_if_kubectl_asks_for_it() {
    let body = br#"{"spec":{"nonsense":1}}"#;
    for media in [MERGE, STRATEGIC, APPLY] {
        let warned = read(media, body).unwrap().apply(&held(), false).unwrap();
        assert_eq!(
            warned.warnings,
            ["unknown field \"spec.nonsense\""],
            "{media}"
        );
        let strict = WriteOptions {
            field_validation: FieldValidation::Strict,
            ..options(media)
        };
        let read = Patch::read(Some(media), body, LIMIT, &strict);
        let refused = read.and_then(|patch| patch.apply(&held(), false));
        assert_eq!(refused.unwrap_err().code(), 400, "{media}");
    }
}

#[test]
fn a_json_patch_is_applied_or_refused_as_a_whole() {
    let body = json!([
        { "op": "test", "path": "/spec/holderIdentity", "value": "pod-1_a" },
        { "op": "replace", "path": "/spec/holderIdentity", "value": "pod-2" },
        { "op": "add", "path": "/metadata/annotations/a~1b", "value": "c" },
        { "op": "remove", "path": "/metadata/labels/app" },
    ]);
    let lease = patched(JSON, &body, false).unwrap();
    assert_eq!(lease.spec.holder(), Some("pod-2"));
    assert_eq!(lease.metadata.annotations["a/b"], "c");
    assert!(lease.metadata.labels.is_empty());
    let test = json!([{ "op": "test", "path": "/spec/holderIdentity", "value": "x" }]);
    assert_eq!(code(JSON, &test), 422);
    let absent = json!([{ "op": "remove", "path": "/spec/x" }]);
    assert_eq!(code(JSON, &absent), 422);
    for wrong in [
        json!({}),
        json!([{ "op": "x", "path": "" }]),
        json!([{ "op": "replace", "path": "", "value": 1 }]),
    ] {
        assert_eq!(code(JSON, &wrong), 400, "{wrong}");
    }
}

#[test]
fn copies_do_not_grow_without_bound() {
    let wide = json!({ "op": "copy", "from": "", "path": "/spec/x" });
    let wide = Value::Array(vec![wide; OPERATIONS_MAX]);
    assert_eq!(code(JSON, &wide), 413);
    let twice: Vec<Value> = (0..30)
        .map(|at| json!({ "op": "copy", "from": "/metadata", "path": format!("/metadata/{at}") }))
        .collect();
    assert_eq!(code(JSON, &Value::Array(twice)), 413);
    // Few values, and each of them long.
    let text = json!({ "op": "add", "path": "/spec/x", "value": "x".repeat(200_000) });
    let long = (0..100)
        .map(|at| json!({ "op": "copy", "from": "/spec/x", "path": format!("/spec/x{at}") }));
    let long = std::iter::once(text).chain(long).collect();
    assert_eq!(code(JSON, &Value::Array(long)), 413);
    let many = json!({ "op": "test", "path": "/kind", "value": "Lease" });
    let many = Value::Array(vec![many; OPERATIONS_MAX + 1]);
    assert_eq!(code(JSON, &many), 400);
}

#[test]
fn an_apply_of_the_holder_removes_what_it_leaves_out() {
    // As kube-lease-manager releases.
    let body = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "leader", "namespace": "shop" },
        "spec": { "leaseTransitions": 3 },
    });
    let released = patched(APPLY, &body, true).unwrap();
    assert_eq!(released.spec.holder(), None);
    assert_eq!(released.spec.lease_transitions, Some(3));
    assert_eq!(released.metadata, held().metadata);
    let other = patched(APPLY, &body, false).unwrap();
    assert_eq!(other, held());
}

#[test]
fn an_apply_creates_and_others_do_not() {
    let target = Target {
        namespace: "shop",
        name: Some("leader"),
    };
    let body = b"# people write so\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  \
                 labels: {a: b}\nspec:\n  holderIdentity: me\n  leaseDurationSeconds: 15\n";
    let apply = read(APPLY, body).unwrap();
    assert!(apply.creates());
    let lease = apply.create(target).unwrap().lease;
    assert_eq!(
        (lease.metadata.name.as_str(), lease.spec.holder()),
        ("leader", Some("me"))
    );
    let merge = read(MERGE, b"{}").unwrap();
    assert!(!merge.creates());
    assert_eq!(merge.create(target).unwrap_err().code(), 404);
}

#[test]
fn options_fit_the_sort_of_patch() {
    let without = Patch::read(Some(APPLY), b"{}", LIMIT, &WriteOptions::default());
    assert_eq!(without.unwrap_err().code(), 422);
    let forced = WriteOptions {
        force: Some(true),
        ..WriteOptions::default()
    };
    let forced = Patch::read(Some(MERGE), b"{}", LIMIT, &forced);
    assert_eq!(forced.unwrap_err().code(), 422);
    assert_eq!(read("application/json", b"{}").unwrap_err().code(), 415);
    assert_eq!(
        read("application/apply-patch+cbor", b"{}")
            .unwrap_err()
            .code(),
        415
    );
    assert_eq!(read(MERGE, &vec![b' '; LIMIT + 1]).unwrap_err().code(), 413);
}

#[test]
fn yaml_that_grows_is_refused() {
    let bomb = b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
    assert_eq!(read(APPLY, bomb).unwrap_err().code(), 400);
    let deep = "[".repeat(10_000);
    for media in ACCEPTED {
        assert_eq!(
            read(media, deep.as_bytes()).unwrap_err().code(),
            400,
            "{media}"
        );
    }
    let block: String = (0..200)
        .map(|at| format!("{}a:\n", " ".repeat(at)))
        .collect();
    assert_eq!(read(APPLY, block.as_bytes()).unwrap_err().code(), 400);
}

/// JSON that looks like parts of a lease and of patches.
fn value() -> impl Strategy<Value = Value> {
    let text = "[a-z$/{}:~\u{e9}-]{0,6}|uid|/metadata/labels|delete|replace|coordination.k8s.io/v1";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let name = "metadata|spec|labels|annotations|ownerReferences|uid|holderIdentity|renewTime|\
                [$]patch|[$]retainKeys|op|path|from|value|[a-z]";
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(name, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_patch_is_a_panic(value in value(), bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        for media in ACCEPTED {
            for holding in [false, true] {
                patched(media, &value, holding).ok();
            }
            read(media, &bytes).ok();
        }
    }

    #[test]
    fn no_operation_is_a_panic(
        operations in proptest::collection::vec(
            (
                "add|remove|replace|move|copy|test",
                "(/(metadata|labels|spec|ownerReferences|0|1|-|99|~1|app|x)){0,4}",
                "(/(metadata|labels|spec|ownerReferences|0|-|x)){0,4}",
                value(),
            ),
            0..6,
        ),
    ) {
        let operations = operations.into_iter().map(|(op, path, from, value)| {
            json!({ "op": op, "path": path, "from": from, "value": value })
        });
        patched(JSON, &Value::Array(operations.collect()), false).ok();
    }
}
