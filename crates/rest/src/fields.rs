//! The fields of a JSON object, read strictly: a field that the call does not have, one that is
//! there twice, and a value of another kind are refused by name.

use std::fmt;

use bytes::Bytes;
use ringfence_core::ClusterId;
use ringfence_proto::{Refusal, v1};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::handle;
use crate::query::{DURATION, millis, unknown, whole};

/// What is said of a field that is there twice.
const TWICE: &str = "a field twice";

/// The fields that are not taken yet.
pub(crate) struct Fields {
    left: Map<String, Value>,
    /// The cluster that this node belongs to.
    own: Option<ClusterId>,
}

impl Fields {
    /// The fields of an object; none of no bytes at all.
    /// `own` is the cluster of this node: a handle of another one is refused.
    pub(crate) fn parse(body: &[u8], own: Option<ClusterId>) -> Result<Self, Refusal> {
        if body.is_empty() {
            let left = Map::new();
            return Ok(Self { left, own });
        }
        let object: Object = serde_json::from_slice(body).map_err(|error| {
            // Nothing of its text, which repeats values: one may be a secret.
            let (line, column) = (error.line(), error.column());
            let twice = error.is_data() && error.to_string().starts_with(TWICE);
            let offered = match twice {
                true => TWICE.to_owned(),
                false => format!("something else at line {line}, column {column}"),
            };
            Refusal::invalid("body", offered, "one JSON object, each field once")
        })?;
        for (name, value) in &object.0 {
            without_handle(name, value)?;
        }
        let left = object.0;
        Ok(Self { left, own })
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.left.remove(name).filter(|value| !value.is_null())
    }

    /// A text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Refusal::invalid(name, "no text", "a text")),
        }
    }

    /// A text that has to be there.
    pub(crate) fn required(&mut self, name: &str, what: &str) -> Result<String, Refusal> {
        self.text(name)?.ok_or_else(|| Refusal::missing(name, what))
    }

    /// A duration, in milliseconds.
    pub(crate) fn millis(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let Value::String(text) = value else {
            return Err(Refusal::invalid(name, value, format!("a text: {DURATION}")));
        };
        millis(&text, name).map(Some)
    }

    /// A whole number, as a number or as its digits in a text: above 2^53 not every program keeps
    /// all digits of a number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        self.take(name)
            .map(|value| number(&value, name))
            .transpose()
    }

    /// Whole numbers.
    pub(crate) fn numbers(&mut self, name: &str) -> Result<Vec<u64>, Refusal> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => values.iter().map(|value| number(value, name)).collect(),
            Some(value) => Err(Refusal::invalid(name, value, "an array of whole numbers")),
        }
    }

    /// True or false; false if it is not there.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(value) => Err(Refusal::invalid(name, value, "true or false")),
        }
    }

    /// The session that asks.
    pub(crate) fn session(&mut self) -> Result<Option<v1::SessionHandle>, Refusal> {
        let text = self.text("session")?;
        let own = self.own;
        text.map(|text| handle::parse(&text)?.of(own)).transpose()
    }

    /// The session that asks, which has to be there.
    pub(crate) fn required_session(&mut self) -> Result<v1::SessionHandle, Refusal> {
        let session = self.session()?;
        session.ok_or_else(|| Refusal::missing("session", "a session handle, NUMBER.SECRET"))
    }

    /// A secret that the caller made.
    pub(crate) fn secret(&mut self) -> Result<Option<Bytes>, Refusal> {
        let text = self.text("secret")?;
        text.map(|text| handle::secret(&text)).transpose()
    }

    /// That nothing is left.
    pub(crate) fn end(self) -> Result<(), Refusal> {
        match self.left.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(unknown(&name, "field")),
        }
    }
}

/// That a field other than `session` holds no handle: names, identities and data are shown to others.
fn without_handle(name: &str, value: &Value) -> Result<(), Refusal> {
    let is_one = |text: &str| text.split('/').any(|part| handle::parse(part).is_ok());
    let has_one = match value {
        Value::String(text) => name != "session" && is_one(text),
        Value::Array(values) => values
            .iter()
            .any(|value| value.as_str().is_some_and(is_one)),
        _ => false,
    };
    let field = match is_one(name) {
        true => "body",
        false => name,
    };
    match has_one || field != name {
        true => {
            let allowed = "one as the value of `session` alone";
            Err(Refusal::invalid(field, "a session handle", allowed))
        }
        false => Ok(()),
    }
}

fn number(value: &Value, name: &str) -> Result<u64, Refusal> {
    let refuse = || {
        let allowed = "a whole number below 2^64, or its decimal digits as a text";
        Refusal::invalid(name, value, allowed)
    };
    match value {
        Value::Number(number) => number.as_u64().ok_or_else(refuse),
        Value::String(text) => whole(text, name),
        _ => Err(refuse()),
    }
}

/// An object without a field that is there twice: two readers could disagree on which one counts.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fresh)
    }
}

struct Fresh;

impl<'de> Visitor<'de> for Fresh {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object, A::Error> {
        let mut fields = Map::new();
        while let Some((name, value)) = access.next_entry::<String, Value>()? {
            if fields.insert(name, value).is_some() {
                return Err(A::Error::custom(TWICE));
            }
        }
        Ok(Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(body: &str, read: impl FnOnce(&mut Fields) -> Result<(), Refusal>) -> String {
        let read = Fields::parse(body.as_bytes(), None).and_then(|mut fields| {
            read(&mut fields)?;
            fields.end()
        });
        match read {
            Ok(()) => String::new(),
            Err(refusal) => refusal.metadata["field"].clone(),
        }
    }

    #[test]
    fn each_kind_is_read_and_another_kind_is_refused_by_name() {
        let millis = |body: &str| field(body, |fields| fields.millis("ttl").map(drop));
        assert_eq!(millis(r#"{"ttl":"15s"}"#), "");
        assert_eq!(millis(r#"{"ttl":null}"#), "");
        for other in [r#"{"ttl":15}"#, r#"{"ttl":"15"}"#, r#"{"ttl":["15s"]}"#] {
            assert_eq!(millis(other), "ttl", "{other}");
        }
        let number = |body: &str| field(body, |fields| fields.number("token").map(drop));
        for fine in [r#"{"token":42}"#, r#"{"token":"9223372036854775807"}"#] {
            assert_eq!(number(fine), "", "{fine}");
        }
        for other in [
            "42.0",
            "4.2e1",
            "-1",
            "\"4x\"",
            "18446744073709551616",
            "{}",
        ] {
            assert_eq!(
                number(&format!("{{\"token\":{other}}}")),
                "token",
                "{other}"
            );
        }
    }

    #[test]
    fn what_is_no_object_a_misspelt_field_and_one_twice_are_refused() {
        let none = |body: &str| field(body, |_| Ok(()));
        for body in [
            "[]",
            "\"17.00\"",
            "{",
            "{}{}",
            "nul",
            "\u{feff}{}",
            "{\"a\":1,\"a\":1}",
        ] {
            assert_eq!(none(body), "body", "{body}");
        }
        assert_eq!(none("{}"), "");
        assert_eq!(none(""), "");
        assert_eq!(none(r#"{"tll":"15s"}"#), "tll");
    }

    #[test]
    fn a_handle_is_the_value_of_its_field_alone() {
        let handle = "17.0b0102030405060708090a0b0c0d0e0f";
        let refused = |body: String| field(&body, |fields| fields.text("session").map(drop));
        assert_eq!(refused(format!("{{\"session\":\"{handle}\"}}")), "");
        for body in [
            format!("{{\"name\":\"{handle}\"}}"),
            format!("{{\"name\":\"jobs/{handle}\"}}"),
            format!("{{\"name\":[1,\"{handle}\"]}}"),
        ] {
            assert_eq!(refused(body.clone()), "name", "{body}");
        }
        assert_eq!(refused(format!("{{\"{handle}\":1}}")), "body");
    }

    #[test]
    fn no_refusal_repeats_what_may_be_a_secret() {
        let secret = "17.0b0102030405060708090a0b0c0d0e0g";
        for body in [
            format!("{{\"session\":\"{secret}\"}}"),
            format!("\"{secret}\""),
            format!("{{\"session\":[\"{secret}\"]}}"),
            format!("{{\"session\":\"{secret}"),
        ] {
            let read = Fields::parse(body.as_bytes(), None).and_then(|mut fields| fields.session());
            let refused = format!("{:?}", read.unwrap_err());
            assert!(!refused.contains("0b0102"), "{refused}");
        }
    }
}
