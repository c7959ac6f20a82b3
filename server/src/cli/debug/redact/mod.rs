//! Texts without secrets: what leaves a machine in a bundle is read by others.
//!
//! ```text
//!   pem: blocks of keys ─> named: values behind names of secrets ─> shapes: what looks like one
//!                                                                     ─> values that are known
//! ```
//!
//! In doubt a text is replaced: a bundle with a gap can be asked about, a secret cannot be taken back.

mod named;
mod pem;
mod shapes;
#[cfg(test)]
mod tests;

use serde_json::Value;

use named::{Layout, is_prose};

/// What replaces a secret.
const REDACTED: &str = "(redacted)";
/// The shortest secret that is looked for wherever it may stand, in bytes: shorter ones are parts of words.
const KNOWN_BYTES_MIN: usize = 8;
/// The most secrets that are looked for.
const KNOWN_MAX: usize = 256;

/// Takes secrets out of texts. What it finds behind the name of a secret in the configuration, it finds
/// everywhere.
#[derive(Default)]
pub(super) struct Redactor {
    known: Vec<String>,
}

impl Redactor {
    /// Replaces this text wherever it stands, from now on.
    pub(super) fn know(&mut self, secret: &str) {
        let secret = secret.trim();
        let is_distinct = secret.len() >= KNOWN_BYTES_MIN && !is_prose(secret);
        if is_distinct && self.known.len() < KNOWN_MAX {
            self.known.push(secret.to_owned());
        }
    }

    /// A configuration file, also one that is no valid TOML. The values of its secrets become known.
    pub(super) fn configuration(&mut self, text: &str) -> String {
        let text = pem::without_blocks(text);
        let mut values = Vec::new();
        let shown = named::without_values(&text, Layout::Toml, |value| {
            values.push(value.to_owned());
        });
        let is_end = |letter: char| letter.is_whitespace() || "\"'[]{},\\".contains(letter);
        for word in values.iter().flat_map(|value| value.split(is_end)) {
            self.know(word);
        }
        self.shapes(&shown)
    }

    /// A log, a message or a list.
    pub(super) fn text(&self, text: &str) -> String {
        let text = pem::without_blocks(text);
        self.shapes(&named::without_values(&text, Layout::Lines, |_| {}))
    }

    /// Figures, whose labels name kinds of credentials and have no credential.
    pub(super) fn figures(&self, text: &str) -> String {
        self.shapes(&pem::without_blocks(text))
    }

    /// The texts in an object, each one alone: quotes in them are escaped once they are written.
    pub(super) fn object(&self, object: Value) -> Value {
        match object {
            Value::String(text) => self.text(&text).into(),
            Value::Array(values) => values.into_iter().map(|value| self.object(value)).collect(),
            Value::Object(members) => members
                .into_iter()
                .map(
                    |(name, value)| match value.is_string() && named::is_secret(&name) {
                        true => (name, REDACTED.into()),
                        false => (self.text(&name), self.object(value)),
                    },
                )
                .collect(),
            other => other,
        }
    }

    fn shapes(&self, text: &str) -> String {
        let shown = shapes::without_passwords(text);
        let shown = shapes::without_credentials(&shown);
        let replace = |text: String, secret: &String| text.replace(secret, REDACTED);
        self.known.iter().fold(shown, replace)
    }
}
