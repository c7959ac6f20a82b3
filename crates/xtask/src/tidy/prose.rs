//! Words that documents, comments, help and messages do not use: each hides a subject, or has a
//! standard term.

use super::texts::{Kind, Text, texts};
use super::words::words;
use super::{SourceFile, Violation, code, outside_of_code};

/// A word or phrase, why it is banned, and what to write instead.
struct Word {
    /// In lower case; a capital at its start does not hide it.
    text: &'static str,
    why: &'static str,
    remedy: &'static str,
}

const HIDES_THE_SUBJECT: &str = "it hides the subject";
const NAME_THE_SUBJECT: &str = "name it: the client, the leader, the caller, an operator";

const WORDS: &[Word] = &[
    Word {
        text: "whoever",
        why: HIDES_THE_SUBJECT,
        remedy: NAME_THE_SUBJECT,
    },
    Word {
        text: "nobody",
        why: HIDES_THE_SUBJECT,
        remedy: "say which party does not: no client, no node, no session; or use the active voice",
    },
    Word {
        text: "somebody",
        why: HIDES_THE_SUBJECT,
        remedy: NAME_THE_SUBJECT,
    },
    Word {
        text: "everybody",
        why: HIDES_THE_SUBJECT,
        remedy: "name them: all clients, all accounts, all members",
    },
    Word {
        text: "anew",
        why: "it is literary",
        remedy: "write `again`, or the verb: retry, restart, reload",
    },
    Word {
        text: "told",
        why: "it does not say what is sent, or by which message",
        remedy: "write receives, learns, is notified, reports, or names the message",
    },
    Word {
        text: "overtaken",
        why: "the field has a word for it",
        remedy: "write `stale`",
    },
    Word {
        text: "leads no more",
        why: "the field has a word for it",
        remedy: "write `lost leadership`",
    },
    Word {
        text: "turned away",
        why: "the field has a word for it",
        remedy: "write `rejected` or `refused`",
    },
    Word {
        text: "by itself",
        why: "it is filler, or it means two things",
        remedy: "write `automatically`, `without an operator` or `alone`, or leave it out",
    },
    Word {
        text: "by chance",
        why: "the field has a word for it",
        remedy: "write `random`",
    },
];

/// Decisions are records of their day, and are not written a second time.
const RECORDS: &str = ".github/decisions/";

/// This file, which names the words.
const LIST: &str = "crates/xtask/src/tidy/prose.rs";

/// What a refusal says since the first release: the functions that users have installed in their
/// PostgreSQL say it, too.
const KEPT: &str = " was overtaken by token ";

/// Checks the prose of a Markdown file, the comments of any file, and what a Rust file says to people.
/// A doc comment of a command is its help text, too.
pub(super) fn check(file: &SourceFile) -> Vec<Violation> {
    if file.path.starts_with(RECORDS) || file.path == LIST {
        return Vec::new();
    }
    let prose = file
        .prose()
        .map(|(number, line)| (number, line, "a document"));
    let mut violations = Vec::new();
    for (number, line, place) in prose.chain(rust(file)).chain(comments(file)) {
        let line = line.to_lowercase();
        let found = WORDS
            .iter()
            .filter(|word| words(&line, word.text).next().is_some());
        violations.extend(found.map(|word| {
            let wrong = format!("`{}` in {place}: {}", word.text, word.why);
            Violation::new(&file.path, number, wrong, word.remedy)
        }));
    }
    violations
}

/// The comments of a Rust file, without code in them, and the messages of one that ships.
fn rust(file: &SourceFile) -> Vec<(usize, String, &'static str)> {
    let texts = texts(file);
    if texts.is_empty() {
        return Vec::new();
    }
    let (code, _) = code::without_tests(&file.text);
    let code: Vec<&str> = code.lines().collect();
    let speaks = speaks(&file.path);
    let mut fenced = false;
    let mut found = Vec::new();
    for Text { line, kind, text } in texts {
        match kind {
            Kind::Comment if text.trim_start_matches(['/', '!', ' ']).starts_with("```") => {
                fenced = !fenced;
            }
            Kind::Comment if !fenced => found.push((line, outside_of_code(&text), "a comment")),
            // One word is a name; a line that is blank there belongs to a test.
            Kind::Literal if speaks && text.contains(' ') && !code[line - 1].is_empty() => {
                let message = without_names(&text).replace(KEPT, "");
                found.push((line, message, "a message"));
            }
            Kind::Comment | Kind::Literal => {}
        }
    }
    found
}

/// What begins a comment in a file of another kind, by its extension.
const MARKS: [(&str, &str); 9] = [
    ("css", "/*"),
    ("go", "//"),
    ("js", "//"),
    ("proto", "//"),
    ("py", "#"),
    ("sh", "#"),
    ("sql", "--"),
    ("yaml", "#"),
    ("yml", "#"),
];

/// The comments of a file of another kind: of a schema, which authors of clients read, also those
/// behind code; of the others the lines that are comments as a whole.
fn comments(file: &SourceFile) -> Vec<(usize, String, &'static str)> {
    let mark = MARKS.iter().find(|(kind, _)| file.has_extension(kind));
    let Some((kind, mark)) = mark else {
        return Vec::new();
    };
    let comment = |line: &str| {
        let (code, comment) = line.split_once(mark)?;
        (*kind == "proto" || code.trim().is_empty()).then(|| outside_of_code(comment))
    };
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(index, line)| Some((index + 1, comment(line)?, "a comment")))
        .collect()
}

/// Whether a person may read what this file says: tests say it to their authors.
fn speaks(path: &str) -> bool {
    let test = path.starts_with("tests/") || path.contains("/tests/") || path.contains("/benches/");
    path.contains("src/") && !test && !path.ends_with("tests.rs")
}

/// A format string without the names of its arguments.
fn without_names(text: &str) -> String {
    text.split('{')
        .map(|part| part.split_once('}').map_or(part, |(_, behind)| behind))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::fixtures::file;
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<Violation> {
        check(&file(path, text))
    }

    #[test]
    fn every_word_is_found_in_prose_with_its_reason_and_remedy() {
        for word in WORDS {
            let found = faults(
                "README.md",
                &format!("One line.\nIt is {} here.\n", word.text),
            );

            assert_eq!(found.len(), 1, "{}", word.text);
            assert_eq!(found[0].line, 2);
            assert!(found[0].wrong.contains(word.why), "{}", found[0]);
            assert_eq!(found[0].remedy, word.remedy);
        }
    }

    #[test]
    fn a_capital_and_a_table_hide_no_word() {
        assert_eq!(faults("a.md", "Whoever asks.\n").len(), 1);
        assert_eq!(faults("a.md", "| one | **Nobody** waits |\n").len(), 1);
    }

    #[test]
    fn comments_are_prose_and_the_code_in_them_is_not() {
        for comment in [
            "// told\n",
            "/// One.\n/// Told.\n",
            "f(); // It is told.\n",
            "/* told */",
        ] {
            let found = faults("a.rs", comment);
            assert_eq!(found.len(), 1, "{comment}");
            assert!(found[0].wrong.contains("in a comment"), "{}", found[0]);
        }
        let code = "let told = anew(); // `told` stays\n/// ```\n/// told();\n/// ```\n";
        assert_eq!(faults("a.rs", code), Vec::new());
    }

    #[test]
    fn comments_of_a_schema_are_prose() {
        let schema = "// Sessions.\nmessage A {\n  // It is told.\n  bool told = 1;\n}\n";
        let found = faults("proto/a.proto", schema);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
    }

    #[test]
    fn lines_that_are_comments_are_prose_in_each_language() {
        for (path, text) in [
            ("a.go", "\t// It is told.\nvar told = 1 // told\n"),
            ("a.js", "// It is told.\nlet told = 'http://told'\n"),
            ("a.py", "# It is told.\ntold = '# told'\n"),
            ("a.sql", "-- It is told.\nSELECT 'told'\n"),
            ("a.yaml", "  # It is told.\n  told: anew\n"),
            ("a.css", "/* It is told. */\n.told {}\n"),
        ] {
            let found = faults(path, text);
            assert_eq!(found.len(), 1, "{path}");
            assert_eq!(found[0].line, 1, "{path}");
        }
    }

    #[test]
    fn messages_of_what_ships_are_prose() {
        let message = "say(\"nobody leads\");\n";
        for path in ["a/src/b.rs", "src/main.rs"] {
            let found = faults(path, message);
            assert_eq!(found.len(), 1, "{path}");
            assert!(found[0].wrong.contains("in a message"), "{}", found[0]);
        }
        for path in [
            "tests/src/a.rs",
            "a/tests/b.rs",
            "a/src/b_tests.rs",
            "a/benches/b.rs",
        ] {
            assert_eq!(faults(path, message), Vec::new(), "{path}");
        }
        for code in [
            "f(\"{told} of {}\", \"told\", \"told-as-held\");\n",
            "#[cfg(test)]\nmod tests {\n    f(\"nobody leads\");\n}\n",
            "f(\"token 8 was overtaken by token 9\");\n",
        ] {
            assert_eq!(faults("a/src/b.rs", code), Vec::new(), "{code}");
        }
    }

    #[test]
    fn code_other_files_records_and_longer_words_are_left_alone() {
        let code = "`nobody_is_forgotten` and `it is told`\n```sh\n# told anew\n```\n";
        assert_eq!(faults("a.md", code), Vec::new());
        assert_eq!(
            faults(".github/decisions/one.md", "Nobody is told.\n"),
            Vec::new()
        );
        assert_eq!(faults("a.md", "untold\n"), Vec::new());
        assert_eq!(faults("a.toml", "# told anew\n"), Vec::new());
        assert_eq!(faults(LIST, "// told anew\n"), Vec::new());
    }
}
