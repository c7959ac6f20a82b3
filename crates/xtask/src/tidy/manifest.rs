//! What each `Cargo.toml` must say: the workspace's lints, and no version or feature of its own. What
//! one that is published must say is in `publish`.

use super::source::Package;
use super::{SourceFile, Violation};

/// Checks the manifest of every package.
pub(super) fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        let Some(manifest) = files.iter().find(|file| file.path == package.manifest) else {
            continue;
        };
        violations.extend(without_lints(manifest));
        violations.extend(own_versions(manifest));
    }
    violations
}

/// The lines of a manifest that set something, each with the table it stands in.
pub(super) fn settings(manifest: &SourceFile) -> Vec<(usize, &str, &str)> {
    let mut table = "";
    let mut settings = Vec::new();
    for (number, line) in manifest.lines() {
        let line = line.trim();
        if let Some(header) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            table = header;
        } else if !line.is_empty() && !line.starts_with('#') {
            settings.push((number, table, line));
        }
    }
    settings
}

fn squeezed(line: &str) -> String {
    line.chars().filter(|c| !c.is_whitespace()).collect()
}

fn without_lints(manifest: &SourceFile) -> Option<Violation> {
    let found = settings(manifest).iter().any(|(_, table, line)| {
        let line = squeezed(line);
        (*table == "lints" && line.starts_with("workspace=true"))
            || (table.is_empty() && line.starts_with("lints.workspace=true"))
    });
    (!found).then(|| {
        Violation::new(
            &manifest.path,
            1,
            "the crate does not have the workspace's lints",
            "add `[lints]` with `workspace = true`",
        )
    })
}

fn own_versions(manifest: &SourceFile) -> Vec<Violation> {
    settings(manifest)
        .into_iter()
        .filter(|(_, table, line)| {
            let line = squeezed(line);
            // A crate that tests itself with more features names itself by its path.
            table.ends_with("dependencies")
                && !line.contains("workspace=true")
                && !line.contains("={path=\".\",features")
        })
        .map(|(number, _, line)| {
            let name = line.split(['=', '.', ' ']).next().unwrap_or(line);
            Violation::new(
                &manifest.path,
                number,
                format!("`{name}` has a version of its own"),
                "put version and features into [workspace.dependencies] of the root and write \
                 `workspace = true` here, so that any selection of crates builds it once",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::fixtures::{file, package};
    use super::*;

    fn faults(text: &str) -> Vec<Violation> {
        let packages = [package("crates/wal", "ringfence-wal", &[])];
        check(&packages, &[file("crates/wal/Cargo.toml", text)])
    }

    #[test]
    fn a_manifest_with_lints_and_shared_versions_passes() {
        let text = "[lints]\nworkspace = true\n\n[dependencies]\nbytes.workspace = true\n\
                    # sled: optional\nsled = { workspace = true, optional = true }\n\
                    [dev-dependencies]\nringfence-wal = { path = \".\", features = [\"sim\"] }\n";
        assert_eq!(faults(text), Vec::new());
        assert_eq!(faults("lints.workspace = true\n"), Vec::new());
    }

    #[test]
    fn a_crate_without_the_workspace_lints_is_refused() {
        assert_eq!(faults("[package]\nname = \"ringfence-wal\"\n").len(), 1);
        assert_eq!(faults("[lints]\nworkspace = false\n").len(), 1);
        assert_eq!(faults("[lints.rust]\nunsafe_code = \"allow\"\n").len(), 1);
    }

    #[test]
    fn a_version_in_a_crate_is_refused_with_its_line() {
        let found = faults("[lints]\nworkspace = true\n[dev-dependencies]\ntempfile = \"3\"\n");

        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 4);
        assert!(found[0].wrong.contains("`tempfile`"), "{}", found[0]);
    }
}
