//! Values behind the names of secrets: `password = "…"`, `"token": "…"`, `--secret …`, arrays and tables
//! of them.

use super::REDACTED;

/// Names with one of these in them are those of secrets.
const STRONG: [&str; 7] = [
    "secret",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "authorization",
    "cookie",
];
/// So are names that end so, unless the value is a number: a fencing token is called a token, too.
const WEAK: [&str; 8] = [
    "token", "tokens", "key", "keys", "pwd", "jwt", "jwts", "bearer",
];
/// Names with one of these in them are none: files are named and not read.
const NONE: [&str; 3] = ["-file", "token-floor", "-total"];
/// What stands before a credential in the value of a header.
const SCHEMES: [&str; 4] = ["bearer", "basic", "digest", "token"];
/// The longest word that is taken for one of a sentence, in bytes.
const PROSE_MAX: usize = 12;

/// How far a value reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Over as many lines as brackets and quotes are open; without them to the end of the line.
    Toml,
    /// Never over the end of a line; without brackets and quotes it is a word.
    Lines,
}

/// Whether the values behind this name are secrets.
pub(super) fn is_secret(name: &str) -> bool {
    kind(name).is_some()
}

/// A short word of small letters, as sentences have: "token: expired".
pub(super) fn is_prose(word: &str) -> bool {
    word.len() <= PROSE_MAX && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Strong,
    Weak,
}

fn kind(name: &str) -> Option<Kind> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&NONE) {
        None
    } else if has(&STRONG) {
        Some(Kind::Strong)
    } else {
        let is_weak = WEAK.iter().any(|end| name.ends_with(end));
        is_weak.then_some(Kind::Weak)
    }
}

/// The text with each value of a secret replaced; `seen` is called with each of them.
pub(super) fn without_values(text: &str, layout: Layout, mut seen: impl FnMut(&str)) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    let mut shown = String::with_capacity(text.len());
    // Up to here the text is shown or replaced; the rest is looked at from `at`.
    let (mut done, mut at) = (0, 0);
    let mut of_table = None;
    while let Some(begin) = text[at..].find(is_part).map(|found| at + found) {
        let end = text[begin..]
            .find(|letter| !is_part(letter))
            .map_or(text.len(), |length| begin + length);
        if layout == Layout::Toml && is_header(text, begin) {
            of_table = table(text, begin);
            at = line_end(text, end);
            continue;
        }
        let kind = kind(&text[begin..end]).or(of_table);
        let value = kind.and_then(|kind| value_of(text, begin, end, kind, layout));
        at = end;
        if let Some((from, to)) = value {
            seen(&text[from..to]);
            shown.push_str(&text[done..from]);
            shown.push_str(REDACTED);
            (done, at) = (to, to);
        }
    }
    shown.push_str(&text[done..]);
    shown
}

/// Whether this is the first name of a line such as `[name.other]`.
fn is_header(text: &str, at: usize) -> bool {
    let start = text[..at].rfind('\n').map_or(0, |found| found + 1);
    let before = text[start..at].trim();
    let before = before.trim_end_matches(['"', '\'']);
    let line = text[at..line_end(text, at)].trim_end();
    matches!(before, "[" | "[[") && line.contains(']') && !line.contains(',')
}

/// What a table is called, if that makes all of its values secrets.
fn table(text: &str, at: usize) -> Option<Kind> {
    let line = &text[at..line_end(text, at)];
    let name = line.split(']').next().unwrap_or_default();
    name.split('.')
        .find_map(|part| kind(part.trim_matches(['"', '\'', ' '])))
}

/// Where the value of this name stands, if there is one and it is a secret.
fn value_of(
    text: &str,
    begin: usize,
    end: usize,
    kind: Kind,
    layout: Layout,
) -> Option<(usize, usize)> {
    let spaces = |at: usize| {
        let rest = &text[at..];
        at + rest.len() - rest.trim_start_matches([' ', '\t']).len()
    };
    // The quotes of a name, escaped if the object is a text in another one.
    let quotes = text[end..].len() - text[end..].trim_start_matches(['"', '\'', '\\']).len();
    let sign = spaces(end + quotes);
    let is_flag = text[begin..].starts_with("--") && quotes == 0 && sign > end;
    let (start, is_equal) = match text[sign..].chars().next() {
        Some('=') => (sign + 1, true),
        Some(':') => (sign + 1, false),
        // The space is what stands apart.
        Some(letter) if is_flag && letter != '\n' => (sign - 1, false),
        _ => return None,
    };
    let from = spaces(start);
    let to = value_end(text, from, layout);
    let value = &text[from..to];
    let bare = value.trim_matches(['"', '\'', '\\']);
    if bare.is_empty() || matches!(bare, "null" | "None" | "true" | "false" | REDACTED) {
        return None;
    }
    if kind == Kind::Weak {
        let is_apart = from > start || value.len() > bare.len();
        let is_sentence = !is_equal && (!is_apart || (is_prose(bare) && value == bare));
        // `--key FILE` and `key = "FILE"` name a file.
        let is_path = [".pem", ".key", ".crt"]
            .iter()
            .any(|end| bare.ends_with(end));
        if is_number(bare) || is_sentence || is_path {
            return None;
        }
    }
    Some((from, to))
}

/// Also as Rust writes a number that may be absent.
fn is_number(value: &str) -> bool {
    let value = value.strip_prefix("Some(").unwrap_or(value);
    let value = value.strip_suffix(')').unwrap_or(value);
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'_';
    !value.is_empty() && value.bytes().all(is_part)
}

fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |found| at + found)
}

/// Where the value that begins at `at` ends.
fn value_end(text: &str, at: usize, layout: Layout) -> usize {
    let limit = match layout {
        Layout::Toml => text.len(),
        Layout::Lines => line_end(text, at),
    };
    let first = text[at..limit].chars().next();
    match (layout, first) {
        (_, Some('"' | '\'' | '\\')) => quoted_end(text, at, limit),
        (_, Some('[' | '{' | '(')) => bracket_end(text, at, limit),
        (Layout::Toml, _) => line_end(text, at),
        (Layout::Lines, _) => {
            let end = word_end(text, at, limit);
            let word = text[at..end].to_ascii_lowercase();
            let rest = &text[end..limit];
            let next = rest.trim_start_matches([' ', '\t']);
            // The scheme of a header: what counts is the next word.
            match SCHEMES.contains(&word.as_str()) && next.len() < rest.len() {
                true => word_end(text, limit - next.len(), limit),
                false => end,
            }
        }
    }
}

fn word_end(text: &str, at: usize, limit: usize) -> usize {
    let mut at = at;
    while let Some(letter) = text[at..limit].chars().next() {
        at = match letter {
            '"' | '\'' => quoted_end(text, at, limit),
            '(' | '[' | '{' => bracket_end(text, at, limit),
            ',' | ';' | '&' | ')' | ']' | '}' | '\\' => return at,
            letter if letter.is_whitespace() => return at,
            letter => at + letter.len_utf8(),
        };
    }
    at
}

/// Where the text in quotes that begins at `at` ends; the quotes may be three, or escaped.
fn quoted_end(text: &str, at: usize, limit: usize) -> usize {
    let rest = &text[at..limit];
    let mark = ["\"\"\"", "'''", "\\\\\\\"", "\\\"", "\"", "'"]
        .into_iter()
        .find(|mark| rest.starts_with(mark));
    let Some(mark) = mark else {
        // A backslash that begins no quote.
        return word_end_behind(text, at, limit);
    };
    let is_long = mark.len() == 3 && !mark.starts_with('\\');
    // A text in single marks ends with its line at the latest.
    let limit = match is_long {
        true => limit,
        false => limit.min(line_end(text, at)),
    };
    let mut from = at + mark.len();
    loop {
        let Some(found) = text[from..limit].find(mark) else {
            return limit;
        };
        let end = from + found;
        let escapes = text[..end].len() - text[..end].trim_end_matches('\\').len();
        if mark == "\"" && escapes % 2 == 1 {
            from = end + 1;
            continue;
        }
        return end + mark.len();
    }
}

fn word_end_behind(text: &str, at: usize, limit: usize) -> usize {
    let behind = at + 1;
    word_end(text, behind.min(limit), limit)
}

/// Where the brackets that open at `at` are closed, whichever they are.
fn bracket_end(text: &str, at: usize, limit: usize) -> usize {
    let (mut at, mut depth) = (at, 0_usize);
    while let Some(letter) = text[at..limit].chars().next() {
        let next = at + letter.len_utf8();
        at = match letter {
            '"' | '\'' => quoted_end(text, at, limit),
            // A comment of TOML may have any quote or bracket in it.
            '#' => line_end(text, at).min(limit),
            _ => next,
        };
        match letter {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    limit
}
