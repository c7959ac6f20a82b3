//! The comments and the string literals of a Rust file, line by line.

use super::SourceFile;

/// A comment, or the inside of a string literal; of one that spans lines, the part on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) kind: Kind,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Comment,
    Literal,
}

/// All of them in a Rust file; none in any other.
pub(super) fn texts(file: &SourceFile) -> Vec<Text> {
    let mut found = Vec::new();
    if !file.has_extension("rs") {
        return found;
    }
    let source = file.text.as_str();
    let mut at = 0;
    let mut line = 1;
    while let Some(skipped) = source[at..].find(['/', '"', '\'']) {
        line += newlines(&source[at..at + skipped]);
        at += skipped;
        let rest = &source[at..];
        let (kind, from, length) = if rest.starts_with("//") {
            (Some(Kind::Comment), 0, up_to(rest, "\n"))
        } else if rest.starts_with("/*") {
            (Some(Kind::Comment), 0, up_to(rest, "*/"))
        } else if let Some(inside) = rest.strip_prefix('"') {
            let inside = literal(&source[..at], inside);
            (Some(Kind::Literal), 1, 1 + inside)
        } else if rest.starts_with('\'') {
            (None, 0, character(rest))
        } else {
            (None, 0, 1)
        };
        if let Some(kind) = kind {
            let pieces = rest[from..length].split('\n').enumerate();
            found.extend(pieces.map(|(below, piece)| Text {
                line: line + below,
                kind,
                text: piece.to_owned(),
            }));
        }
        // The closing mark belongs to the literal.
        let length = (length + from).min(rest.len());
        line += newlines(&rest[..length]);
        at += length;
    }
    found
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

fn up_to(rest: &str, end: &str) -> usize {
    rest.find(end).unwrap_or(rest.len())
}

/// The length of a literal's inside, given what stands before its mark and behind it.
fn literal(before: &str, inside: &str) -> usize {
    let prefix = before.trim_end_matches('#');
    if prefix.ends_with('r') {
        let hashes = &before[prefix.len()..];
        return up_to(inside, &format!("\"{hashes}"));
    }
    let mut escaped = false;
    let end = inside.find(|next| {
        let ends = next == '"' && !escaped;
        escaped = next == '\\' && !escaped;
        ends
    });
    end.unwrap_or(inside.len())
}

/// The length of a character literal, or of the mark before a lifetime.
fn character(rest: &str) -> usize {
    let mut inside = rest[1..].chars();
    let first = inside.next();
    if first == Some('\\') {
        // The character behind the escape may be the mark itself.
        let end = rest.get(3..).and_then(|behind| behind.find('\''));
        return end.map_or(1, |end| 3 + end + 1);
    }
    match (first, inside.next()) {
        (Some(first), Some('\'')) => 2 + first.len_utf8(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::fixtures::file;
    use super::*;

    fn found(source: &str) -> Vec<(usize, Kind, String)> {
        let texts = texts(&file("a.rs", source)).into_iter();
        texts
            .map(|text| (text.line, text.kind, text.text))
            .collect()
    }

    fn comment(line: usize, text: &str) -> (usize, Kind, String) {
        (line, Kind::Comment, text.to_owned())
    }

    fn string(line: usize, text: &str) -> (usize, Kind, String) {
        (line, Kind::Literal, text.to_owned())
    }

    #[test]
    fn comments_and_literals_are_found_with_their_lines() {
        let source = "/// Doc.\nlet a = \"// no\"; // yes\n/* one\ntwo */ f(\"x\")\n";

        let expected = [
            comment(1, "/// Doc."),
            string(2, "// no"),
            comment(2, "// yes"),
            comment(3, "/* one"),
            comment(4, "two "),
            string(4, "x"),
        ];
        assert_eq!(found(source), expected);
    }

    #[test]
    fn escapes_raw_strings_characters_and_lifetimes_end_where_they_end() {
        assert_eq!(found(r#"("a\"b\\", 1)"#), [string(1, r#"a\"b\\"#)]);
        assert_eq!(
            found("(r#\"a \"b\" c\"#, br\"\\\", \"d\")"),
            [string(1, "a \"b\" c"), string(1, "\\"), string(1, "d")]
        );
        assert_eq!(
            found(r#"('"', '\'', '\u{41}', "a") // b"#),
            [string(1, "a"), comment(1, "// b")]
        );
        assert_eq!(found("fn f<'a>(a: &'a str) {} // b"), [comment(1, "// b")]);
    }

    #[test]
    fn a_literal_over_two_lines_is_two_texts() {
        let source = "a(\"one \\\n   two\");\n// three\n";

        let expected = [
            string(1, "one \\"),
            string(2, "   two"),
            comment(3, "// three"),
        ];
        assert_eq!(found(source), expected);
        assert_eq!(texts(&file("a.md", "\"one\"")), []);
    }
}
