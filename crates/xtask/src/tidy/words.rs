//! What no file may say, and how a file may look.

use super::{SourceFile, Violation};

/// A text that must not occur, and why.
struct Ban {
    /// Split in two, so that this table does not break its own rules.
    text: (&'static str, &'static str),
    within: Within,
    why: &'static str,
    remedy: &'static str,
}

#[derive(Clone, Copy)]
enum Within {
    /// Rust sources.
    Rust,
    /// Every text file, and only where it stands as a word of its own.
    AnyAsWord,
    /// Every text file, and only at the start of a line.
    AnyLineStart,
}

const BANS: &[Ban] = &[
    Ban {
        text: ("#[ign", "ore"),
        within: Within::Rust,
        why: "a test that is not run is a claim that is not checked",
        remedy: "assert today's behaviour with a comment that says why it is wrong, or delete it",
    },
    Ban {
        text: ("```ign", "ore"),
        within: Within::Rust,
        why: "an example that is not compiled goes stale",
        remedy: "make it compile (`no_run` if it needs a cluster), or mark it `text`",
    },
    Ban {
        text: ("tod", "o!("),
        within: Within::Rust,
        why: "it panics in front of a user",
        remedy: "write the code, or leave the branch out of the type",
    },
    Ban {
        text: ("unimpl", "emented!("),
        within: Within::Rust,
        why: "it panics in front of a user",
        remedy: "write the code, or leave the branch out of the type",
    },
    Ban {
        text: ("db", "g!("),
        within: Within::Rust,
        why: "it is left over from debugging and may print a session's secret",
        remedy: "delete it, or log with `tracing`",
    },
    Ban {
        text: ("FIX", "ME"),
        within: Within::AnyAsWord,
        why: "it says that something is wrong and is not found again",
        remedy: "correct it, or open an issue and name it by its number",
    },
    Ban {
        text: ("XX", "X"),
        within: Within::AnyAsWord,
        why: "it says that something is wrong and is not found again",
        remedy: "correct it, or open an issue and name it by its number",
    },
    Ban {
        text: ("<<<<", "<<<"),
        within: Within::AnyLineStart,
        why: "a merge was left half done",
        remedy: "finish the merge",
    },
    Ban {
        text: (">>>>", ">>>"),
        within: Within::AnyLineStart,
        why: "a merge was left half done",
        remedy: "finish the merge",
    },
];

/// Above this many lines a source says at its top why.
const LONG_FILE_LINES: usize = 500;

/// The reason stands within this many lines of the top.
const REASON_WITHIN_LINES: usize = 30;

const REASON: &str = "Over 500 lines because ";

/// Checks the words, the white space and the length of one file.
pub(super) fn check(file: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, line) in file.lines() {
        violations.extend(banned(file, number, line));
        violations.extend(bare_promise(file, number, line));
        violations.extend(white_space(file, number, line));
    }
    violations.extend(too_long(file));
    violations
}

fn banned(file: &SourceFile, number: usize, line: &str) -> Vec<Violation> {
    let found = BANS.iter().filter(|ban| {
        let text = [ban.text.0, ban.text.1].concat();
        match ban.within {
            Within::Rust => file.has_extension("rs") && line.contains(&text),
            Within::AnyAsWord => words(line, &text).next().is_some(),
            Within::AnyLineStart => line.starts_with(&text),
        }
    });
    found
        .map(|ban| {
            let wrong = format!("`{}{}`: {}", ban.text.0, ban.text.1, ban.why);
            Violation::new(&file.path, number, wrong, ban.remedy)
        })
        .collect()
}

/// A promise to do something later must name the issue where it is kept.
fn bare_promise(file: &SourceFile, number: usize, line: &str) -> Option<Violation> {
    let promise = ["TO", "DO"].concat();
    let bare = words(line, &promise).any(|end| {
        let digits = line[end..]
            .strip_prefix("(#")
            .and_then(|rest| rest.split_once(')'));
        digits.is_none_or(|(issue, _)| issue.parse::<u32>().is_err())
    });
    bare.then(|| {
        Violation::new(
            &file.path,
            number,
            format!("a bare `{promise}`: it is not found again"),
            format!("do it now, or open an issue and write `{promise}(#n)`"),
        )
    })
}

/// The ends of every place where `word` stands alone in `line`.
pub(super) fn words<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).filter_map(move |(start, _)| {
        let end = start + word.len();
        let alone = !line[..start].ends_with(joins) && !line[end..].starts_with(joins);
        alone.then_some(end)
    })
}

fn white_space(file: &SourceFile, number: usize, line: &str) -> Option<Violation> {
    // What `gofmt` and `go mod` write has tabs.
    let go = file.has_extension("go") || file.has_extension("mod");
    if line.contains('\t') && !go {
        return Some(Violation::new(
            &file.path,
            number,
            "a tab",
            "indent with spaces",
        ));
    }
    (line.trim_end().len() != line.len()).then(|| {
        Violation::new(
            &file.path,
            number,
            "white space at the end of the line",
            "cut it",
        )
    })
}

fn too_long(file: &SourceFile) -> Option<Violation> {
    let source = file.has_extension("rs") || file.has_extension("proto");
    let lines = file.lines().count();
    if !source || lines <= LONG_FILE_LINES {
        return None;
    }
    let explained = file.lines().take(REASON_WITHIN_LINES).any(|(_, line)| {
        let comment = line.trim_start_matches(['/', '!', ' ']);
        line.starts_with("//") && comment.starts_with(REASON)
    });
    (!explained).then(|| {
        Violation::new(
            &file.path,
            LONG_FILE_LINES + 1,
            format!("{lines} lines, and more than {LONG_FILE_LINES} need a reason"),
            format!("split it by mechanism, or say `// {REASON}…` at its top"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::source::fixtures::file;
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<Violation> {
        check(&file(path, text))
    }

    #[test]
    fn every_ban_fires_in_rust() {
        for ban in BANS {
            let line = [ban.text.0, ban.text.1, "\n"].concat();
            let found = faults("src/lib.rs", &line);
            assert_eq!(found.len(), 1, "{line}");
            assert!(found[0].wrong.contains(ban.why), "{}", found[0]);
        }
    }

    #[test]
    fn prose_may_speak_of_what_code_must_not_do() {
        let line = ["No `#[ign", "ore]`, no `db", "g!(x)`.\n"].concat();

        assert_eq!(faults("CONTRIBUTING.md", &line), Vec::new());
    }

    #[test]
    fn a_promise_needs_an_issue() {
        let promise = ["TO", "DO"].concat();

        assert_eq!(faults("a.md", &format!("{promise}: later\n")).len(), 1);
        assert_eq!(faults("a.toml", &format!("# {promise}(soon)\n")).len(), 1);
        assert_eq!(
            faults("a.rs", &format!("// {promise}(#41): a faster queue\n")),
            Vec::new()
        );
    }

    #[test]
    fn a_word_within_a_word_is_not_a_word() {
        let template = ["mktemp /tmp/dir.XX", "XXXX\n"].concat();
        assert_eq!(faults("run.sh", &template), Vec::new());

        let alone = ["# XX", "X: odd\n"].concat();
        assert_eq!(faults("run.sh", &alone).len(), 1);
    }

    #[test]
    fn tabs_and_trailing_white_space_are_refused() {
        assert_eq!(faults("a.md", "one\ttwo\n").len(), 1);
        assert_eq!(faults("main.go", "one\ttwo\n"), Vec::new());
        assert_eq!(faults("a.md", "one \n").len(), 1);
        assert_eq!(
            faults("a.md", "one\r\n"),
            Vec::new(),
            "`lines` takes both line ends"
        );
        assert_eq!(faults("a.md", "one\n\ntwo\n"), Vec::new());
    }

    #[test]
    fn a_long_source_says_why() {
        let long = "fn f() {}\n".repeat(LONG_FILE_LINES + 1);
        assert_eq!(faults("a.rs", &long).len(), 1);
        assert_eq!(faults("a.proto", &long).len(), 1);
        assert_eq!(faults("a.md", &long), Vec::new());

        let explained = format!("//! {REASON}one table reads better than three.\n{long}");
        assert_eq!(faults("a.rs", &explained), Vec::new());
        let exact = "fn f() {}\n".repeat(LONG_FILE_LINES);
        assert_eq!(faults("a.rs", &exact), Vec::new());
    }
}
