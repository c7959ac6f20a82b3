//! Links of the Markdown files: one that names a file of the project must find it.

use std::path::Path;

use super::{SourceFile, Violation};

/// Checks the links of `file`; `exists` answers for paths from the root of the workspace.
pub(super) fn check(file: &SourceFile, exists: &dyn Fn(&str) -> bool) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, line) in file.prose() {
        violations.extend(targets(&line).into_iter().filter_map(|target| {
            broken(&file.path, &target, exists)
                .map(|(wrong, remedy)| Violation::new(&file.path, number, wrong, remedy))
        }));
    }
    violations
}

/// What the links of a line of prose point to: `[text](target)` and `[text]: target`.
fn targets(prose: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for (at, _) in prose.match_indices("](") {
        if let Some((target, _)) = prose[at + 2..].split_once(')') {
            targets.push(target);
        }
    }
    if prose.starts_with('[')
        && let Some((_, target)) = prose.split_once("]: ")
    {
        targets.push(target);
    }
    // A title may stand behind the target: [text](target "title").
    targets
        .into_iter()
        .filter_map(|it| it.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

fn broken(
    file: &str,
    target: &str,
    exists: &dyn Fn(&str) -> bool,
) -> Option<(String, &'static str)> {
    let elsewhere = ["http://", "https://", "mailto:", "#"];
    if elsewhere.iter().any(|start| target.starts_with(start)) {
        return None;
    }
    let path = target.split('#').next().unwrap_or(target);
    let resolved = match path.strip_prefix('/') {
        Some(from_root) => resolve("", from_root),
        None => {
            let folder = Path::new(file)
                .parent()
                .and_then(Path::to_str)
                .unwrap_or("");
            resolve(folder, path)
        }
    };
    match resolved {
        None => Some((
            format!("the link to `{target}` leaves the project"),
            "link to something a fresh clone has",
        )),
        Some(path) if path.is_empty() || exists(&path) => None,
        Some(path) => Some((
            format!("the link to `{target}` finds nothing (looked for {path})"),
            "correct the path, or write the file",
        )),
    }
}

/// `path` as seen from `folder`, without `.` and `..`; nothing if it climbs out of the root.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::source::fixtures::file;
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<Violation> {
        let present = [
            "README.md",
            "crates/ARCHITECTURE.md",
            "crates/core/src/lib.rs",
        ];
        check(&file(path, text), &|path| present.contains(&path))
    }

    #[test]
    fn links_that_find_their_file_pass() {
        let text = "See [map](ARCHITECTURE.md#map), [core](core/src/lib.rs \"title\"),\n\
                    [top](../README.md), [same](/README.md), [here](#map).\n\
                    [web](https://example.org/x) and\n[label]: ../README.md\n";

        assert_eq!(faults("crates/ARCHITECTURE.md", text), Vec::new());
    }

    #[test]
    fn a_link_to_nothing_is_refused_with_its_line() {
        let found = faults(
            "README.md",
            "one\n[gone](docs/gone.md) [map](crates/ARCHITECTURE.md)\n",
        );

        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert!(found[0].wrong.contains("docs/gone.md"), "{}", found[0]);
        assert_eq!(faults("README.md", "[label]: gone.md\n").len(), 1);
    }

    #[test]
    fn a_link_out_of_the_project_is_refused() {
        assert_eq!(faults("README.md", "[up](../secret.md)\n").len(), 1);
    }

    #[test]
    fn code_holds_no_links() {
        let text = "`a[0](x)`\n```rust\nlet x = f[0](gone);\n```\n";

        assert_eq!(faults("README.md", text), Vec::new());
        assert_eq!(faults("src/lib.rs", "//! [gone](gone.md)\n"), Vec::new());
    }
}
