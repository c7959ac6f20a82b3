//! The walk of an acquire in `crates/ARCHITECTURE.md`: it is true, and it does not grow.

use std::collections::BTreeSet;

use crate::blocks::source;

const DOCUMENT: &str = "crates/ARCHITECTURE.md";
const HEADING: &str = "## The walk of an acquire\n";
/// The files that the walk names today. Lower it with every file that goes; the goal is 25.
const FILES_MAX: usize = 25;

/// One step: `14. [path](link) `function`: reason.`
struct Step<'a> {
    number: usize,
    path: &'a str,
    link: &'a str,
    function: &'a str,
}

fn walk(document: &str) -> Vec<Step<'_>> {
    let (_, section) = document.split_once(HEADING).expect("the walk's heading");
    let section = section.split("\n## ").next().expect("a section");
    let numbered = section
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    numbered.map(|line| step(line).expect(line)).collect()
}

fn step(line: &str) -> Option<Step<'_>> {
    let (number, rest) = line.split_once(". [")?;
    let (path, rest) = rest.split_once("](")?;
    let (link, rest) = rest.split_once(") `")?;
    let (function, reason) = rest.split_once("`: ")?;
    Some(Step {
        number: number.parse().ok().filter(|_| !reason.is_empty())?,
        path,
        link,
        function,
    })
}

#[test]
fn the_walk_of_an_acquire_names_files_and_functions_that_exist() {
    let document = source(DOCUMENT);
    for (expected, step) in (1..).zip(walk(&document)) {
        let Step {
            number,
            path,
            link,
            function,
        } = step;
        assert_eq!(number, expected, "{path}");
        let linked = link
            .strip_prefix("../")
            .map_or_else(|| format!("crates/{link}"), str::to_owned);
        assert_eq!(
            path, linked,
            "step {number} names one file and links another"
        );
        assert!(
            source(path).contains(function),
            "step {number}: {path} has no {function:?}"
        );
    }
}

#[test]
fn the_walk_of_an_acquire_does_not_grow() {
    let document = source(DOCUMENT);
    let files: BTreeSet<&str> = walk(&document).iter().map(|step| step.path).collect();
    assert!(!files.is_empty(), "no steps found");
    assert!(
        files.len() <= FILES_MAX,
        "{} files on the walk, {FILES_MAX} allowed: {files:#?}",
        files.len()
    );
}
