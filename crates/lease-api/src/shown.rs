//! Answers as JSON: an object, and the lines of a watch.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::lease::Lease;
use crate::status::{API_VERSION, Failure, KIND};

/// The annotation of the bookmark that ends the initial events of a watch.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One lease.
#[must_use]
pub fn object(lease: &Lease) -> Vec<u8> {
    bytes(&lease.shown())
}

/// What a list says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The version as of which the list is complete: a watch goes on from here.
    pub resource_version: u64,
    /// What the client sends to get the next page; `None` on the last one.
    pub continue_at: Option<String>,
    /// How many leases come after this page; `None` if it is not known, or a selector is set.
    pub remaining: Option<u64>,
}

impl Page {
    /// `metav1.ListMeta`.
    pub(crate) fn metadata(&self) -> Map<String, Value> {
        let mut metadata = Map::new();
        let version = self.resource_version.to_string();
        metadata.insert("resourceVersion".to_owned(), Value::from(version));
        if let Some(at) = &self.continue_at {
            metadata.insert("continue".to_owned(), Value::from(at.as_str()));
        }
        if let Some(remaining) = self.remaining {
            metadata.insert("remainingItemCount".to_owned(), Value::from(remaining));
        }
        metadata
    }
}

/// What happened to a lease, as a watch sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there, or matches the selectors, for the first time.
    Added,
    /// It was there before.
    Modified,
    /// It is gone, or does not match any more; shown in its last state, with the version of the end.
    Deleted,
}

impl Change {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A line of a watch: what happened to a lease.
#[must_use]
pub fn change(change: Change, lease: &Lease) -> Vec<u8> {
    line(change.word(), &lease.shown())
}

/// A line of a watch: everything up to this version was sent. `initial`: this ends the initial events.
#[must_use]
pub fn bookmark(resource_version: u64, initial: bool) -> Vec<u8> {
    line("BOOKMARK", &bookmarked(resource_version, initial))
}

pub(crate) fn bookmarked(resource_version: u64, initial: bool) -> Value {
    let mut metadata = json!({ "resourceVersion": resource_version.to_string() });
    if initial {
        metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
    }
    json!({ "kind": KIND, "apiVersion": API_VERSION, "metadata": metadata, "spec": {} })
}

/// The last line of a watch that failed after its start: 410 makes clients list again.
#[must_use]
pub fn error(failure: &Failure) -> Vec<u8> {
    line("ERROR", failure)
}

/// The most characters of a warning.
const WARNING_CHARS_MAX: usize = 256;

/// The value of a header `Warning`, which client-go logs and kubectl prints. The text may have parts
/// of a request in it: what a header cannot hold becomes `?`.
#[must_use]
pub fn warning(text: &str) -> String {
    let mut value = String::from("299 - \"");
    for c in text.chars().take(WARNING_CHARS_MAX) {
        match c {
            '"' | '\\' => value.extend(['\\', c]),
            ' '..='~' => value.push(c),
            _ => value.push('?'),
        }
    }
    value.push('"');
    value
}

pub(crate) fn line(kind: &'static str, object: &impl Serialize) -> Vec<u8> {
    let mut line = bytes(&Event { kind, object });
    line.push(b'\n');
    line
}

#[derive(Serialize)]
struct Event<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    object: &'a T,
}

/// Nothing that is shown here can fail to be JSON: keys are texts, numbers are finite.
pub(crate) fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::fixtures::held;

    fn read(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_warning_fits_in_a_header() {
        let shown = warning("unknown field \"a\\\r\n\u{e9}\"");
        assert_eq!(shown, r#"299 - "unknown field \"a\\???\"""#);
        assert!(warning(&"x".repeat(1_000)).len() < 300);
    }

    #[test]
    fn a_watch_is_made_of_lines() {
        let lines = [
            change(Change::Deleted, &held()),
            bookmark(9, true),
            bookmark(9, false),
            error(&Failure::too_old(1, 5)),
        ];
        for line in &lines {
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(line.last(), Some(&b'\n'));
        }
        assert_eq!(read(&lines[0])["type"], "DELETED");
        assert_eq!(read(&lines[0])["object"]["kind"], "Lease");
        let metadata = &read(&lines[1])["object"]["metadata"];
        assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
        assert_eq!(metadata["resourceVersion"], "9");
        assert_eq!(
            read(&lines[2])["object"]["metadata"]["annotations"],
            Value::Null
        );
        assert_eq!(read(&lines[3])["object"]["code"], 410);
    }
}
