//! The description of leases in OpenAPI 3: kubectl reads from it that unknown fields are refused by
//! the server, which patches there are, and what `kubectl explain` says.

use serde_json::{Map, Value, json};

use crate::status::{GROUP, KIND};

const LEASE: &str = "io.k8s.api.coordination.v1.Lease";
const LEASES: &str = "io.k8s.api.coordination.v1.LeaseList";
const SPEC: &str = "io.k8s.api.coordination.v1.LeaseSpec";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const OWNER: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// The sorts of patch.
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// The whole document. `version`: that of this software.
pub(crate) fn leases(version: &str) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Ringfence", "version": version },
        "paths": paths(),
        "components": { "schemas": schemas() },
    })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Of a field: a reference stands alone, so that its description is beside it.
fn field(name: &str, description: &str) -> Value {
    json!({ "allOf": [reference(name)], "description": description })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn number(description: &str) -> Value {
    json!({ "type": "integer", "format": "int32", "description": description })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn texts(description: &str) -> Value {
    json!({
        "type": "object",
        "additionalProperties": { "type": "string", "default": "" },
        "description": description,
    })
}

fn kind(kind: &str) -> Value {
    json!({ "group": GROUP, "kind": kind, "version": "v1" })
}

fn schemas() -> Value {
    let time = json!({ "type": "string", "format": "date-time" });
    let any = json!({ "type": "object" });
    json!({
        LEASE: lease(),
        LEASES: list(),
        SPEC: spec(),
        META: metadata(),
        LIST_META: { "type": "object", "properties": {
            "continue": text("What to send to get the next page."),
            "remainingItemCount": { "type": "integer", "format": "int64" },
            "resourceVersion": text("The version of which the list is."),
        } },
        OWNER: owner(),
        TIME: time,
        MICRO_TIME: time,
        DELETE_OPTIONS: any,
        PATCH: any,
        STATUS: any,
    })
}

fn typed(mut properties: Value) -> Value {
    properties["apiVersion"] = text("The group and the version of the object.");
    properties["kind"] = text("The kind of the object.");
    properties
}

fn lease() -> Value {
    let properties = json!({
        "metadata": field(META, "What the lease is called, and by whom it is owned."),
        "spec": field(SPEC, "Who holds the lease."),
    });
    json!({
        "type": "object",
        "description": "Lease defines a lease concept.",
        "properties": typed(properties),
        "x-kubernetes-group-version-kind": [kind(KIND)],
    })
}

fn list() -> Value {
    let properties = json!({
        "metadata": field(LIST_META, "The version of the list."),
        "items": { "type": "array", "items": reference(LEASE) },
    });
    json!({
        "type": "object",
        "description": "LeaseList is a list of Lease objects.",
        "properties": typed(properties),
        "required": ["items"],
        "x-kubernetes-group-version-kind": [kind("LeaseList")],
    })
}

fn spec() -> Value {
    json!({
        "type": "object",
        "description": "LeaseSpec is a specification of a Lease.",
        "properties": {
            "acquireTime": field(MICRO_TIME, "When the holder got the lease; the server sets it."),
            "holderIdentity": text("The holder of the lease; empty or absent if there is none."),
            "leaseDurationSeconds": number("How long candidates wait after the last renewal."),
            "leaseTransitions": number("How many times the holder changed; the server counts."),
            "preferredHolder": text("Not supported here: dropped with a warning."),
            "renewTime": field(MICRO_TIME, "When the holder renewed last; the server sets it."),
            "strategy": text("Not supported here: dropped with a warning."),
        },
    })
}

fn metadata() -> Value {
    json!({
        "type": "object",
        "description": "ObjectMeta is metadata that all persisted resources must have.",
        "properties": {
            "annotations": texts("Keys and values that are not selected by."),
            "creationTimestamp": field(TIME, "When the object was created."),
            "deletionGracePeriodSeconds": { "type": "integer", "format": "int64" },
            "deletionTimestamp": reference(TIME),
            "finalizers": {
                "type": "array",
                "description": "Not supported here: refused.",
                "items": { "type": "string", "default": "" },
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "generateName": text("Not supported here: refused."),
            "generation": { "type": "integer", "format": "int64" },
            "labels": texts("Keys and values that can be selected by."),
            "managedFields": { "type": "array", "items": { "type": "object" } },
            "name": text("The name, which is unique within its namespace."),
            "namespace": text("The namespace."),
            "ownerReferences": {
                "type": "array",
                "description": "The objects that own this one.",
                "items": reference(OWNER),
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-list-type": "map",
                "x-kubernetes-patch-merge-key": "uid",
                "x-kubernetes-patch-strategy": "merge",
            },
            "resourceVersion": text("The version of the object."),
            "selfLink": text("Ignored."),
            "uid": text("Distinguishes objects of one name."),
        },
    })
}

fn owner() -> Value {
    json!({
        "type": "object",
        "description": "OwnerReference contains enough information to identify an owning object.",
        "properties": {
            "apiVersion": text("The group and the version of the owner."),
            "blockOwnerDeletion": flag("Whether the owner's deletion waits for that of the object."),
            "controller": flag("Whether the owner manages the object."),
            "kind": text("The kind of the owner."),
            "name": text("The name of the owner."),
            "uid": text("The uid of the owner."),
        },
        "required": ["apiVersion", "kind", "name", "uid"],
        "x-kubernetes-map-type": "atomic",
    })
}

/// The parameters of each group of operations.
const OF_WRITES: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const OF_LISTS: [&str; 9] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];

fn parameter(name: &str) -> Value {
    let kind = match name {
        "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
        "allowWatchBookmarks" | "sendInitialEvents" | "watch" | "force" => "boolean",
        _ => "string",
    };
    json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } })
}

fn parameters(names: &[&str], more: &[&str]) -> Value {
    let names = names.iter().chain(more);
    Value::Array(names.map(|name| parameter(name)).collect())
}

fn in_path(names: &[&str]) -> Value {
    let names = names.iter().map(|name| {
        let schema = json!({ "type": "string", "uniqueItems": true });
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    Value::Array(names.collect())
}

fn content(medias: &[&str], schema: &str) -> Value {
    let medias = medias.iter().map(|media| {
        let schema = json!({ "schema": reference(schema) });
        ((*media).to_owned(), schema)
    });
    Value::Object(medias.collect::<Map<_, _>>())
}

/// An operation: its verb, what it takes and what it answers.
fn operation(action: &str, answers: &str, parameters: Value, body: Option<Value>) -> Value {
    let content = content(&["application/json"], answers);
    let mut operation = json!({
        "tags": ["coordination_v1"],
        "parameters": parameters,
        "responses": { "200": { "description": "OK", "content": content } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind(KIND),
    });
    if let Some(content) = body {
        operation["requestBody"] = json!({ "content": content });
    }
    operation
}

fn paths() -> Value {
    let json = ["application/json"];
    let lists = || parameters(&OF_LISTS, &["watch"]);
    let writes = || parameters(&OF_WRITES, &[]);
    let whole = || Some(content(&json, LEASE));
    let all = json!({ "get": operation("list", LEASES, lists(), None) });
    let of_namespace = json!({
        "parameters": in_path(&["namespace"]),
        "get": operation("list", LEASES, lists(), None),
        "post": operation("post", LEASE, writes(), whole()),
    });
    let of_delete = ["dryRun", "gracePeriodSeconds", "propagationPolicy"];
    let options = Some(content(&json, DELETE_OPTIONS));
    let patch = Some(content(&PATCHES, PATCH));
    let one = json!({
        "parameters": in_path(&["name", "namespace"]),
        "get": operation("get", LEASE, parameters(&["resourceVersion"], &[]), None),
        "put": operation("put", LEASE, writes(), whole()),
        "patch": operation("patch", LEASE, parameters(&OF_WRITES, &["force"]), patch),
        "delete": operation("delete", STATUS, parameters(&of_delete, &[]), options),
    });
    let base = "/apis/coordination.k8s.io/v1";
    json!({
        format!("{base}/leases"): all,
        format!("{base}/namespaces/{{namespace}}/leases"): of_namespace,
        format!("{base}/namespaces/{{namespace}}/leases/{{name}}"): one,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reference_has_its_target() {
        let document = leases("0.1.0");
        let text = document.to_string();
        let references = text.split("\"$ref\":\"#").skip(1);
        for pointer in references.map(|rest| rest.split('"').next().unwrap()) {
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }

    #[test]
    fn kubectl_finds_that_the_server_validates_and_merges() {
        let document = leases("0.1.0");
        let path = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}";
        let patch = &document["paths"][path]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"], kind("Lease"));
        let names = patch["parameters"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|parameter| &parameter["name"]).collect();
        assert!(names.contains(&&Value::from("fieldValidation")));
        let sorts = patch["requestBody"]["content"].as_object().unwrap();
        assert!(sorts.contains_key("application/strategic-merge-patch+json"));
        let owners = "/properties/ownerReferences/x-kubernetes-patch-merge-key";
        let key = document["components"]["schemas"][META].pointer(owners);
        assert_eq!(key, Some(&Value::from("uid")));
    }
}
