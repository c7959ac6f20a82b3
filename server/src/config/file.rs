//! The configuration file.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::ConfigError;
use super::given::Given;

/// The longest configuration file, in bytes: an operator who names another file by mistake, a disk
/// image say, learns so before it is in memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a configuration file.
pub(super) fn read_file(path: PathBuf) -> Result<Given, ConfigError> {
    let text = match read_text(&path) {
        Ok(text) if text.len() as u64 > FILE_BYTES_MAX => {
            let why = format!("it is longer than {FILE_BYTES_MAX} bytes, so it is no such file");
            return Err(ConfigError::File { path, why });
        }
        Ok(text) => text,
        Err(source) => return Err(ConfigError::Unreadable { path, source }),
    };
    parse_file(&text).map_err(|why| ConfigError::File { path, why })
}

/// The text of a file, up to one byte more than is allowed.
fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Parses the text of a configuration file; an error names the line and the key.
pub(super) fn parse_file(text: &str) -> Result<Given, String> {
    toml::from_str(text).map_err(|error| explained(text, &error))
}

/// What is wrong, and where. The line is not repeated, nor is a value: each may hold a secret.
fn explained(text: &str, error: &toml::de::Error) -> String {
    let what = without_value(error.message());
    let before = error.span().and_then(|span| text.get(..span.start));
    let Some(before) = before else { return what };
    let line = before.matches('\n').count() + 1;
    let column = before
        .chars()
        .rev()
        .take_while(|letter| *letter != '\n')
        .count()
        + 1;
    let key = text
        .lines()
        .nth(line - 1)
        .and_then(|line| line.split_once('='))
        .map(|(key, _)| key.trim())
        .filter(|key| may_be_key(key));
    match key {
        Some(key) => format!("line {line}, column {column}, key `{key}`: {what}"),
        None => format!("line {line}, column {column}: {what}"),
    }
}

/// Whether it has the form of our keys. What stands before `=` in a line of a text of several lines may be
/// a secret in base64, which has capitals or digits.
fn may_be_key(text: &str) -> bool {
    const BYTES_MAX: usize = 40;
    let is_part = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.len() <= BYTES_MAX && text.bytes().all(is_part)
}

/// `invalid type: string "…", expected …` without the value.
fn without_value(message: &str) -> String {
    if let Some((name, others)) = unknown_field(message)
        && !may_be_key(name)
    {
        return format!("unknown field, {}", others.trim_end());
    }
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.trim_end().to_owned();
    };
    match found.split_once(": ") {
        Some((fault, value)) if fault.starts_with("invalid ") => {
            let kind = value.split([' ', '`', '"']).next().unwrap_or_default();
            format!("{fault}: {kind}, expected {}", expected.trim_end())
        }
        _ => message.trim_end().to_owned(),
    }
}

/// The name of a key that there is none of, and what is said of those that there are.
fn unknown_field(message: &str) -> Option<(&str, &str)> {
    let rest = message.strip_prefix("unknown field `")?;
    rest.split_once("`, ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_in_a_file_is_named_and_no_value_is_repeated() {
        for (text, place, what) in [
            (
                "name = \"n1\"\nheartbeat-ms = \"hunter2\"",
                "line 2, column 16, key `heartbeat-ms`",
                "expected u64",
            ),
            ("name = [\"hunter2\"", "line 1, column ", ""),
            ("name = \"hunter2", "line 1, column ", ""),
            (
                "join = \"hunter2, expected nothing\"",
                "line 1, column 8, key `join`",
                "expected a sequence",
            ),
            ("\"hunter2\n", "line 1, column ", ""),
            ("key-file = \"\"\"-----BEGIN\nHunter2==", "line ", ""),
            ("Hunter2==", "line 1, column ", ""),
            ("Hunter2 = \"x\"", "line 1, column ", "unknown field"),
        ] {
            let why = parse_file(text).expect_err("must be refused");
            assert!(why.starts_with(place), "{text}: {why}");
            assert!(why.contains(what), "{text}: {why}");
            let lower = why.to_lowercase();
            assert!(!lower.contains("hunter2"), "{text}: {why}");
        }
    }
}
