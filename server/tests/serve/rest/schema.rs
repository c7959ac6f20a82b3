//! Whether an answer is what `proto/openapi.json` says of its call and status: all properties that it
//! requires, none that it does not name, and values of the kinds that it names. Patterns and formats
//! of texts are not looked at.

use serde_json::{Map, Value};

use super::client::Told;

const OPENAPI: &str = include_str!("../../../../proto/openapi.json");

/// What every call may be answered with before it is known which one it is, or by HTTP itself.
const OF_HTTP: [u16; 5] = [400, 404, 405, 408, 431];

/// What a schema here is made of; another word would be ignored.
const WORDS: [&str; 17] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "const",
    "default",
    "description",
    "enum",
    "examples",
    "format",
    "items",
    "maximum",
    "minimum",
    "oneOf",
    "pattern",
    "properties",
    "required",
    "type",
];

/// Panics if the answer to this request, whose first line counts, is not as described.
#[track_caller]
pub(super) fn check(request: &[u8], told: &Told) {
    let line = request.split(|byte| *byte == b'\r').next().unwrap();
    let line = String::from_utf8_lossy(line);
    let [method, url, ..] = line.split(' ').collect::<Vec<_>>()[..] else {
        return;
    };
    let path = url.split('?').next().unwrap();
    let described: Value = serde_json::from_str(OPENAPI).unwrap();
    let faults = match told.body.is_empty() {
        // hyper refuses without a body.
        true => no_body(told),
        false => faults_of(&described, method, path, told),
    };
    assert!(faults.is_empty(), "{line}: {faults:#?}\n{told:?}");
}

fn no_body(told: &Told) -> Vec<String> {
    match OF_HTTP.contains(&told.status) {
        true => Vec::new(),
        false => vec![format!("{} without a body", told.status)],
    }
}

fn faults_of(described: &Value, method: &str, path: &str, told: &Told) -> Vec<String> {
    let call = call_of(described, path).and_then(|call| call.get(method.to_lowercase()));
    let status = told.status.to_string();
    let response = call.and_then(|call| call["responses"].get(&status));
    let content = match response {
        Some(response) => &target(described, response)["content"],
        None if OF_HTTP.contains(&told.status) || call.is_none() => {
            &described["components"]["responses"]["Problem400"]["content"]
        }
        None => return vec![format!("the status {status} is not described")],
    };
    let content = content.as_object().unwrap();
    let as_said = |kind: &str| told.head.contains(&format!("\ncontent-type: {kind}"));
    let Some((kind, content)) = content.iter().find(|(kind, _)| as_said(kind)) else {
        let kinds: Vec<_> = content.keys().collect();
        return vec![format!("{status} has another content type than {kinds:?}")];
    };
    if !kind.ends_with("json") {
        return Vec::new();
    }
    let mut checking = Checking::new(described);
    checking.value(&content["schema"], &told.json(), "");
    checking.faults
}

/// The methods of a path; a name takes all that is left of one.
fn call_of<'a>(described: &'a Value, path: &str) -> Option<&'a Value> {
    let paths = described["paths"].as_object().unwrap();
    let exact = paths.get(path).filter(|_| !path.contains('{'));
    exact.or_else(|| {
        let named = paths.iter().find(|(described, _)| {
            let fixed = described.split_once('{').map(|(fixed, _)| fixed);
            fixed.is_some_and(|fixed| path.len() > fixed.len() && path.starts_with(fixed))
        });
        named.map(|(_, call)| call)
    })
}

/// What a reference refers to, or the value itself.
fn target<'a>(described: &'a Value, value: &'a Value) -> &'a Value {
    let Some(reference) = value.get("$ref") else {
        return value;
    };
    let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
    described.pointer(pointer).unwrap()
}

struct Checking<'a> {
    described: &'a Value,
    faults: Vec<String>,
}

impl<'a> Checking<'a> {
    fn new(described: &'a Value) -> Self {
        let faults = Vec::new();
        Self { described, faults }
    }

    fn value(&mut self, schema: &'a Value, value: &Value, at: &str) {
        self.shallow(schema, value, at);
        let Value::Object(members) = value else {
            return;
        };
        let mut named = Vec::new();
        if self.names(schema, &mut named) {
            let extra = members
                .keys()
                .filter(|name| !named.contains(&name.as_str()));
            let extra = extra.map(|name| format!("{at}/{name} is not named"));
            self.faults.extend(extra);
        }
    }

    /// All but that there is no property besides those that are named.
    fn shallow(&mut self, schema: &'a Value, value: &Value, at: &str) {
        let Value::Object(words) = schema else {
            panic!("{at}: a schema is an object: {schema}")
        };
        for (word, said) in words {
            assert!(WORDS.contains(&word.as_str()), "{at}: what is {word:?}?");
            let fits = match word.as_str() {
                "$ref" => {
                    let target = target(self.described, schema);
                    self.shallow(target, value, at);
                    true
                }
                "allOf" => {
                    for part in said.as_array().unwrap() {
                        self.shallow(part, value, at);
                    }
                    true
                }
                "oneOf" => said.as_array().unwrap().iter().any(|one| {
                    let mut checking = Checking::new(self.described);
                    checking.value(one, value, at);
                    checking.faults.is_empty()
                }),
                "type" => is_a(said.as_str().unwrap(), value),
                "const" => value == said,
                "enum" => said.as_array().unwrap().contains(value),
                "minimum" => value.as_f64().is_none_or(|it| it >= said.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|it| it <= said.as_f64().unwrap()),
                "required" => said.as_array().unwrap().iter().all(|name| {
                    let members = value.as_object();
                    members.is_none_or(|members| members.contains_key(name.as_str().unwrap()))
                }),
                "properties" => {
                    self.properties(said.as_object().unwrap(), value, at);
                    true
                }
                "items" => {
                    for (place, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.value(said, item, &format!("{at}/{place}"));
                    }
                    true
                }
                "additionalProperties" if said.is_object() => {
                    for (name, member) in value.as_object().into_iter().flatten() {
                        self.value(said, member, &format!("{at}/{name}"));
                    }
                    true
                }
                _ => true,
            };
            if !fits {
                let fault = format!("{at}: {value} does not fit {word} {said}");
                self.faults.push(fault);
            }
        }
    }

    fn properties(&mut self, schemas: &'a Map<String, Value>, value: &Value, at: &str) {
        for (name, schema) in schemas {
            if let Some(member) = value.get(name) {
                self.value(schema, member, &format!("{at}/{name}"));
            }
        }
    }

    /// Collects the names of an object's properties; whether there are no others.
    fn names(&self, schema: &'a Value, named: &mut Vec<&'a str>) -> bool {
        if schema.get("additionalProperties").is_some() {
            return false;
        }
        let mut closed = false;
        if schema.get("$ref").is_some() {
            closed |= self.names(target(self.described, schema), named);
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            closed |= self.names(part, named);
        }
        if let Some(properties) = schema["properties"].as_object() {
            named.extend(properties.keys().map(String::as_str));
            closed = true;
        }
        closed
    }
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("what is {other}?"),
    }
}

#[test]
fn an_answer_that_is_not_as_described_has_faults() {
    let described = serde_json::json!({
        "components": { "schemas": { "Base": {
            "type": "object",
            "properties": { "a": { "type": "integer", "minimum": 1 } },
            "required": ["a"],
        } } },
    });
    let schema = serde_json::json!({ "allOf": [
        { "$ref": "#/components/schemas/Base" },
        { "type": "object", "properties": { "b": { "type": "array", "items": { "enum": ["x"] } } } },
    ] });
    let faults = |value: Value| {
        let mut checking = Checking::new(&described);
        checking.value(&schema, &value, "");
        checking.faults.len()
    };
    assert_eq!(faults(serde_json::json!({ "a": 1 })), 0);
    assert_eq!(faults(serde_json::json!({ "a": 1, "b": ["x"] })), 0);
    for wrong in [
        serde_json::json!({}),
        serde_json::json!({ "a": 0 }),
        serde_json::json!({ "a": "1" }),
        serde_json::json!({ "a": 1, "b": ["y"] }),
        serde_json::json!({ "a": 1, "b": "x" }),
        serde_json::json!({ "a": 1, "c": 1 }),
    ] {
        assert_eq!(faults(wrong.clone()), 1, "{wrong}");
    }
}
