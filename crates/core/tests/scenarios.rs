//! Runs the stories in `tests/scenarios/*.txt` against the state machine.
//!
//! A story is a list of steps: a line that says what happens, `----`, and what the state machine
//! answered and changed, up to an empty line. `RECORD=1 cargo test -p ringfence-core` writes the
//! present answers into the files: read the difference before you keep it.
//!
//! After every step the state is written as a snapshot, restored, and compared.
#![allow(clippy::unwrap_used)]

mod story;

use std::fs;
use std::path::PathBuf;

use story::Story;

#[test]
fn every_story_goes_as_told() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let record = std::env::var_os("RECORD").is_some();
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 20, "only {} stories found", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let told = fs::read_to_string(&file).unwrap();
        let found = retell(&told, &file.display().to_string());
        if found == told {
            continue;
        }
        if record {
            fs::write(&file, found).unwrap();
        } else {
            wrong.push(difference(&file.display().to_string(), &told, &found));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nRECORD=1 records the present answers",
        wrong.join("\n")
    );
}

/// The story as it really goes.
fn retell(told: &str, file: &str) -> String {
    let mut story = Story::new();
    let mut out = String::new();
    let mut lines = told.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        out.push_str(line);
        out.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if lines.peek().is_some_and(|(_, next)| *next == "----") {
            while lines.next_if(|(_, next)| !next.is_empty()).is_some() {}
        }
        let answer = story
            .step(line)
            .unwrap_or_else(|wrong| panic!("{file}:{}: {wrong}: `{line}`", at + 1));
        if !answer.is_empty() {
            out.push_str("----\n");
            out.push_str(&answer);
            if lines.peek().is_some_and(|(_, next)| !next.is_empty()) {
                out.push('\n');
            }
        }
    }
    out
}

fn difference(file: &str, told: &str, found: &str) -> String {
    let mut pairs = told.lines().zip(found.lines()).enumerate();
    match pairs.find(|(_, (told, found))| told != found) {
        Some((at, (told, found))) => format!("{file}:{}:\n  told  {told}\n  found {found}", at + 1),
        None => format!("{file}: ends differently"),
    }
}
