//! The rules of the house that no compiler checks.
//!
//! Each rule is a plain function from what was read to what is wrong with it, so that its test
//! needs no workspace; only [`check`] touches the disk, `git` and `cargo metadata`.

mod circles;
mod code;
mod discard;
mod edges;
mod layout;
mod links;
mod manifest;
mod patches;
mod prose;
mod publish;
mod source;
mod texts;
mod words;

use std::fmt;
use std::path::Path;

/// One broken rule: where, what is wrong, what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path from the root of the workspace.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub wrong: String,
    /// What to do about it.
    pub remedy: String,
}

impl Violation {
    fn new(
        file: impl Into<String>,
        line: usize,
        wrong: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            file: file.into(),
            line,
            wrong: wrong.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}; {}",
            self.file, self.line, self.wrong, self.remedy
        )
    }
}

/// A text file of the project.
#[derive(Clone, Debug)]
struct SourceFile {
    /// Path from the root of the workspace, with `/`.
    path: String,
    text: String,
}

impl SourceFile {
    /// The lines with their numbers, counted from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(position, line)| (position + 1, line))
    }

    /// The lines of a Markdown file outside of its code; none of any other file.
    fn prose(&self) -> impl Iterator<Item = (usize, String)> {
        let mut fenced = false;
        let lines = self.lines().filter(|_| self.has_extension("md"));
        lines.filter_map(move |(number, line)| {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
                return None;
            }
            (!fenced).then(|| (number, outside_of_code(line)))
        })
    }

    fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|found| found == extension)
    }
}

/// A line of prose without what stands between marks of code, which is every second part.
fn outside_of_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Checks the workspace at `root` and returns everything that is wrong, sorted by place.
///
/// # Errors
/// A sentence, if `git` or `cargo metadata` cannot be asked or a file cannot be read.
pub fn check(root: &Path) -> Result<Vec<Violation>, String> {
    let files = source::project_files(root)?;
    let packages = source::packages(root)?;

    let mut violations = Vec::new();
    violations.extend(edges::check(&packages));
    violations.extend(circles::check(&packages, &files));
    violations.extend(layout::check(&packages, &files));
    violations.extend(manifest::check(&packages, &files));
    violations.extend(publish::check(&packages, &files));
    violations.extend(patches::check(root)?);
    for file in &files {
        violations.extend(words::check(file));
        violations.extend(prose::check(file));
        violations.extend(discard::check(file));
        violations.extend(links::check(file, &|path| root.join(path).exists()));
    }
    violations.sort();
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_reads_as_place_fault_and_remedy() {
        let violation = Violation::new("a/b.rs", 7, "a tab", "use spaces");

        assert_eq!(violation.to_string(), "a/b.rs:7: a tab; use spaces");
    }
}
