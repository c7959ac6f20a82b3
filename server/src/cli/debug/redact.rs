//! Texts without secrets: what leaves a machine in a bundle is read by others.

use std::borrow::Cow;

/// What replaces a secret.
const REDACTED: &str = "(redacted)";
/// Names of settings whose values are secrets, or may have one in them.
const SECRET_NAMES: [&str; 6] = [
    "secret",
    "token",
    "password",
    "passphrase",
    "credential",
    "key",
];
/// Names with one of these in them that are none: files, which are named and not read, and numbers.
const NO_SECRETS: [&str; 3] = ["-file", "token-floor", "_total"];

/// A configuration file in which each secret value is replaced, line by line, also one that is no valid
/// TOML.
pub(super) fn configuration(text: &str) -> String {
    let mut inside = false;
    let mut shown = String::with_capacity(text.len());
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        // The rest of a text of several lines.
        let opens = line.matches("\"\"\"").count() + line.matches("'''").count();
        if inside {
            inside = opens % 2 == 0;
            continue;
        }
        if !value.is_empty() && is_secret(name) {
            inside = opens % 2 == 1;
            shown.push_str(&format!("{}= {REDACTED}\n", name));
            continue;
        }
        shown.push_str(&words(line));
        shown.push('\n');
    }
    shown
}

fn is_secret(name: &str) -> bool {
    let name = name.trim().to_lowercase().replace('_', "-");
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    has(&SECRET_NAMES) && !has(&NO_SECRETS)
}

/// A text in which each word that has the form of a credential is replaced: cluster tokens, JWTs,
/// session handles, keys and passwords in addresses.
pub(super) fn words(text: &str) -> Cow<'_, str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.+/=:@".contains(letter);
    let mut shown = String::new();
    let mut rest = text;
    let mut changed = false;
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        match looks_secret(word) {
            true => {
                changed = true;
                shown.push_str(REDACTED);
            }
            false => shown.push_str(word),
        }
        let next = behind.find(is_part).unwrap_or(behind.len());
        shown.push_str(&behind[..next]);
        rest = &behind[next..];
    }
    match changed {
        true => Cow::Owned(shown),
        false => Cow::Borrowed(text),
    }
}

fn looks_secret(word: &str) -> bool {
    // Also behind the name of what it is for.
    let jwt = word.find("eyJ").map_or("", |start| &word[start..]);
    let is_jwt = jwt.matches('.').count() >= 2;
    let has_password = word
        .split_once("://")
        .and_then(|(_, rest)| rest.split('/').next()?.split_once('@'))
        .is_some_and(|(user, _)| user.contains(':'));
    word.contains("rft_") || is_jwt || has_password || is_handle(word)
}

/// A session handle: a number, a dot, and 128 bits in hex.
fn is_handle(word: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex = |part: &str| part.len() == 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    word.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.')
        .any(|text| {
            let (firsts, seconds) = (text.split('.'), text.split('.').skip(1));
            firsts
                .zip(seconds)
                .any(|(first, second)| is_number(first) && is_hex(second))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_values_are_replaced_and_files_and_numbers_are_not() {
        let text = "name = \"n1\"\ntoken-floor = 7\ncluster-secret-file = \"/etc/s\"\nkey-file = \"/k\"\n\
                    password = \"p4ss\"\n api_token=\"abc\"\nsecret = \"\"\"\nfirst\nsecond\n\"\"\"\n\
                    log = \"info\"\n";
        let shown = configuration(text);
        for kept in ["n1", "token-floor = 7", "/etc/s", "/k", "log = \"info\""] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
        for hidden in ["p4ss", "abc", "first", "second"] {
            assert!(!shown.contains(hidden), "{hidden}: {shown}");
        }
    }

    #[test]
    fn credentials_are_found_in_any_line() {
        for secret in [
            "rft_7_AAAA",
            "eyJhbGciOi.eyJzdWIi.c2ln",
            "postgres://user:p4ss@db/x",
            "12.00112233445566778899aabbccddeeff",
        ] {
            let line = format!("why={secret} (and more), \"{secret}\"");
            let shown = words(&line);
            assert!(!shown.contains(secret), "{shown}");
            assert!(shown.contains("and more"), "{shown}");
        }
        for plain in [
            "cluster 00112233445566778899aabbccddeeff",
            "http://127.0.0.1:7420/x",
            "a.b.c 7",
        ] {
            assert_eq!(words(plain), plain);
        }
    }
}
