//! Rendered objects, as data.

use serde_json::Value;

/// The documents of a YAML text that have content.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    let parsed = documents.map(|document| {
        let document = document.trim_start_matches("---\n");
        let parsed: Result<Value, _> = serde_saphyr::from_str(document);
        parsed.unwrap_or_else(|error| panic!("{error}: {document}"))
    });
    parsed.filter(|object| !object.is_null()).collect()
}

/// What tells an object from all others: kind, namespace and name.
pub(crate) fn identity(object: &Value) -> [String; 3] {
    let metadata = &object["metadata"];
    [&object["kind"], &metadata["namespace"], &metadata["name"]]
        .map(|part| part.as_str().unwrap_or_default().to_owned())
}

/// Those of this kind.
pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let found = objects.iter().filter(|object| object["kind"] == kind);
    found.collect()
}

/// The variables of the node's container, by name.
pub(crate) fn env<'a>(objects: &'a [Value], name: &str) -> Option<&'a str> {
    let set = of_kind(objects, "StatefulSet")[0];
    let env = &set["spec"]["template"]["spec"]["containers"][0]["env"];
    let found = env.as_array().unwrap().iter();
    let found = found.clone().find(|variable| variable["name"] == name)?;
    found["value"].as_str()
}
