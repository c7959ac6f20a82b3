//! What a crate that is published must say, and on what it may depend: what a registry shows of it is
//! complete, and a user of it can build it. `.ci/nightly` packs all of them and builds what was packed.

use super::source::{Dependency, Kind, Package};
use super::{SourceFile, Violation, manifest};

/// What readers of a registry see of a crate.
const SETTINGS: [&str; 5] = ["description", "license", "readme", "keywords", "categories"];

/// Checks every package that does not say `publish = false`.
pub(super) fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        let Some(said) = &package.published else {
            continue;
        };
        let fault =
            |wrong: String, remedy: String| Violation::new(&package.manifest, 1, wrong, remedy);
        let manifest = files.iter().find(|file| file.path == package.manifest);
        let includes = manifest.is_none_or(|manifest| {
            let settings = manifest::settings(manifest);
            let mut lines = settings.iter().map(|(_, table, line)| (*table, *line));
            lines.any(|(table, line)| table == "package" && line.starts_with("include = "))
        });
        let missing = SETTINGS
            .into_iter()
            .filter(|setting| !said.iter().any(|found| found == setting))
            .chain((!includes).then_some("include"));
        violations.extend(missing.map(|setting| {
            fault(
                format!("the crate is published without `{setting}`"),
                "add it, or write `publish.workspace = true` to keep the crate here".to_owned(),
            )
        }));
        let ours = package.dependencies.iter().filter_map(|dependency| {
            let target = packages
                .iter()
                .find(|found| found.name == dependency.name)?;
            dependency_fault(package, target, dependency)
        });
        violations.extend(ours.map(|(wrong, remedy)| fault(wrong, remedy)));
    }
    violations
}

/// What is wrong with a dependency of a published crate on a crate of this workspace.
fn dependency_fault(
    package: &Package,
    target: &Package,
    dependency: &Dependency,
) -> Option<(String, String)> {
    let name = &target.name;
    let by_path_alone = dependency.requirement == "*";
    if package.name == target.name {
        return (!by_path_alone).then(|| {
            let wrong =
                "the crate asks for itself by its version, which a registry does not have yet";
            let remedy = format!("write `{name} = {{ path = \".\", features = […] }}`");
            (wrong.to_owned(), remedy)
        });
    }
    if target.published.is_none() {
        // What only tests need is left out of what is published, if it has no version.
        return (dependency.kind != Kind::Dev || !by_path_alone).then(|| {
            (
                format!("a published crate depends on `{name}`, which is not published"),
                format!(
                    "publish `{name}`, too, or depend on it in tests only and without a version in \
                     [workspace.dependencies]"
                ),
            )
        });
    }
    let exact = format!("={}", target.version);
    (dependency.requirement != exact).then(|| {
        (
            format!(
                "a published crate depends on `{name}` in versions `{}`",
                dependency.requirement
            ),
            format!(
                "write `version = \"{exact}\"` in [workspace.dependencies]: published crates are \
                 released together, and tested with each other only"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::source::fixtures::{file, package};
    use super::*;

    const COMPLETE: &str = "[package]\nname = \"ringfence-guard\"\ninclude = [\"/src\"]\n";

    fn published(name: &str, dependencies: &[(&str, Kind, &str)]) -> Package {
        let mut package = package("crates/guard", name, &[]);
        package.published = Some(SETTINGS.map(str::to_owned).into());
        let dependencies = dependencies
            .iter()
            .map(|(name, kind, requirement)| Dependency {
                name: (*name).to_owned(),
                kind: *kind,
                requirement: (*requirement).to_owned(),
                features: Vec::new(),
            });
        package.dependencies = dependencies.collect();
        package
    }

    fn faults(guard: Package) -> Vec<String> {
        let core = published("ringfence-core", &[]);
        let testkit = package("crates/testkit", "ringfence-testkit", &[]);
        check(
            &[guard, core, testkit],
            &[file("crates/guard/Cargo.toml", COMPLETE)],
        )
        .into_iter()
        .map(|violation| violation.to_string())
        .collect()
    }

    #[test]
    fn a_complete_crate_with_published_dependencies_passes() {
        let guard = published(
            "ringfence-guard",
            &[
                ("ringfence-core", Kind::Normal, "=0.1.0"),
                ("ringfence-testkit", Kind::Dev, "*"),
                ("ringfence-guard", Kind::Dev, "*"),
                ("thiserror", Kind::Normal, "^2"),
            ],
        );
        assert_eq!(faults(guard), Vec::<String>::new());
    }

    #[test]
    fn a_crate_that_is_not_published_may_say_nothing() {
        let mut guard = published("ringfence-guard", &[("ringfence-core", Kind::Normal, "*")]);
        guard.published = None;
        assert_eq!(faults(guard), Vec::<String>::new());
    }

    #[test]
    fn a_setting_that_is_missing_is_named() {
        let mut guard = published("ringfence-guard", &[]);
        guard.published = Some(vec!["description".to_owned(), "license".to_owned()]);
        let found = faults(guard).join("\n");
        for setting in ["`readme`", "`keywords`", "`categories`"] {
            assert!(found.contains(setting), "{found}");
        }

        let guard = published("ringfence-guard", &[]);
        let bare = file(
            "crates/guard/Cargo.toml",
            "[package]\nname = \"ringfence-guard\"\n",
        );
        let found = check(&[guard], &[bare]);
        assert_eq!(found.len(), 1);
        assert!(found[0].wrong.contains("`include`"), "{}", found[0]);
    }

    #[test]
    fn a_dependency_that_users_could_not_build_is_refused() {
        for (name, kind, requirement, why) in [
            (
                "ringfence-testkit",
                Kind::Normal,
                "*",
                "which is not published",
            ),
            (
                "ringfence-testkit",
                Kind::Build,
                "*",
                "which is not published",
            ),
            (
                "ringfence-testkit",
                Kind::Dev,
                "=0.1.0",
                "which is not published",
            ),
            ("ringfence-core", Kind::Normal, "*", "in versions `*`"),
            (
                "ringfence-core",
                Kind::Normal,
                "^0.1.0",
                "in versions `^0.1.0`",
            ),
            ("ringfence-guard", Kind::Dev, "=0.1.0", "asks for itself"),
        ] {
            let found = faults(published("ringfence-guard", &[(name, kind, requirement)]));
            assert_eq!(found.len(), 1, "{name} {kind:?} {requirement}");
            assert!(found[0].contains(why), "{}", found[0]);
        }
    }
}
