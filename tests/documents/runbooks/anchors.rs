//! What programs, alerts and pages say about documents: each heading that they name is there.

use std::collections::BTreeSet;
use std::process::Command;

use crate::blocks::{root, source};

/// The headings of a document, as addresses name them.
fn anchors(document: &str) -> BTreeSet<String> {
    let text = source(document);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            heading
                .chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect()
}

/// Each `deploy/DOCUMENT.md`, with what stands behind it up to the end of the address.
fn named(text: &str) -> Vec<(String, Option<String>)> {
    let mut named = Vec::new();
    for (at, _) in text.match_indices("deploy/") {
        let rest = &text[at..];
        let end = rest.find(".md").map(|end| end + 3);
        let Some(document) = end.map(|end| &rest[..end]) else {
            continue;
        };
        if document.contains(|letter: char| letter.is_whitespace() || letter == '"') {
            continue;
        }
        let is_part =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        let anchor = rest[document.len()..].strip_prefix('#').map(|behind| {
            let end = behind
                .find(|letter| !is_part(letter))
                .unwrap_or(behind.len());
            behind[..end].to_owned()
        });
        named.push((document.to_owned(), anchor));
    }
    named
}

#[test]
fn every_heading_that_a_program_names_is_there() {
    let mut list = Command::new("git");
    list.args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
    ]);
    let listed = list
        .args(["*.rs", "*.js", "*.yaml", "*.service"])
        .current_dir(root())
        .output();
    let listed = String::from_utf8(listed.expect("git lists the files").stdout);
    let mut seen = 0;
    let mut wrong = Vec::new();
    for file in listed.expect("paths are text").lines() {
        if file.starts_with("tests/documents") || !root().join(file).exists() {
            continue;
        }
        for (document, anchor) in named(&source(file)) {
            let is_recovery = document == "deploy/RECOVERY.md";
            match anchor {
                Some(anchor) if !anchors(&document).contains(&anchor) => {
                    wrong.push(format!("{file}: {document} has no heading #{anchor}"));
                }
                // An operator in a hurry is led to the runbook, not to the document.
                None if is_recovery => wrong.push(format!("{file}: which runbook of {document}?")),
                Some(_) => seen += 1,
                None => {}
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(seen >= 10, "{seen} headings are named");
}
