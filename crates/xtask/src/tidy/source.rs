//! What the rules look at: the files of the project, and the packages with what they name.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::SourceFile;
use crate::cargo::cargo;

/// Texts that others wrote or that a tool writes; the rules on text are not for them.
const NOT_OURS: &[&str] = &["Cargo.lock", "LICENSE"];

/// A crate of the workspace, as `cargo metadata` tells it.
#[derive(Clone, Debug)]
pub(super) struct Package {
    pub(super) name: String,
    /// Path of its `Cargo.toml` from the root of the workspace.
    pub(super) manifest: String,
    pub(super) version: String,
    /// Which of the settings for readers of a registry it has; `None` if it is not published.
    pub(super) published: Option<Vec<String>>,
    pub(super) dependencies: Vec<Dependency>,
}

impl Package {
    /// The folder of the crate, from the root of the workspace.
    pub(super) fn folder(&self) -> &str {
        self.manifest.strip_suffix("/Cargo.toml").unwrap_or("")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The versions that fit; `*` if it is named by its path alone.
    pub(super) requirement: String,
    /// Features that this dependency turns on.
    pub(super) features: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Build,
    Dev,
}

/// The text files that git tracks or would track: what is ignored is not the project.
pub(super) fn project_files(root: &Path) -> Result<Vec<SourceFile>, String> {
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ])
    .current_dir(root);
    let listing = output_of(git, "git ls-files")?;

    let mut files = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        let absolute = root.join(path);
        // Listed and absent: deleted, and not yet committed so. A link is judged at its target.
        let is_file = absolute
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file());
        if !is_file || NOT_OURS.contains(&path) || path.ends_with(".patch") {
            continue;
        }
        let bytes = std::fs::read(&absolute).map_err(|error| format!("read {path}: {error}"))?;
        // Not UTF-8: golden bytes and the like, which have no lines to judge.
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        if !text.contains('\0') {
            files.push(SourceFile {
                path: path.to_owned(),
                text,
            });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The crates of the workspace, with the dependencies that their manifests name.
pub(super) fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let mut metadata = cargo();
    metadata
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root);
    parse_metadata(&output_of(metadata, "cargo metadata")?)
}

fn output_of(mut process: Command, what: &str) -> Result<String, String> {
    let output = process
        .output()
        .map_err(|error| format!("start `{what}`: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{what}` failed: {}", told.trim()));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{what}` answered with other than UTF-8"))
}

fn parse_metadata(text: &str) -> Result<Vec<Package>, String> {
    let unexpected = || "the answer of `cargo metadata` has another form".to_owned();
    let metadata: Value =
        serde_json::from_str(text).map_err(|error| format!("`cargo metadata`: {error}"))?;
    let root = metadata["workspace_root"].as_str().ok_or_else(unexpected)?;
    let mut packages = Vec::new();
    for package in metadata["packages"].as_array().ok_or_else(unexpected)? {
        let name = package["name"].as_str().ok_or_else(unexpected)?;
        let manifest = package["manifest_path"].as_str().ok_or_else(unexpected)?;
        let mut dependencies = Vec::new();
        for dependency in package["dependencies"].as_array().ok_or_else(unexpected)? {
            let kind = match dependency["kind"].as_str() {
                None => Kind::Normal,
                Some("build") => Kind::Build,
                Some("dev") => Kind::Dev,
                Some(_) => return Err(unexpected()),
            };
            let name = dependency["name"]
                .as_str()
                .ok_or_else(unexpected)?
                .to_owned();
            let features = dependency["features"].as_array();
            let features = features
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str());
            let requirement = dependency["req"].as_str().ok_or_else(unexpected)?;
            dependencies.push(Dependency {
                name,
                kind,
                requirement: requirement.to_owned(),
                features: features.map(str::to_owned).collect(),
            });
        }
        packages.push(Package {
            name: name.to_owned(),
            manifest: relative(root, manifest),
            version: package["version"]
                .as_str()
                .ok_or_else(unexpected)?
                .to_owned(),
            published: published(package),
            dependencies,
        });
    }
    Ok(packages)
}

/// The settings of a package that are not empty; `None` for `publish = false`, which is a list of no
/// registries.
fn published(package: &Value) -> Option<Vec<String>> {
    let nowhere = package["publish"].as_array().is_some_and(Vec::is_empty);
    let said = package.as_object().into_iter().flatten();
    let said = said.filter(|(_, value)| match value {
        Value::Null => false,
        Value::Array(values) => !values.is_empty(),
        _ => true,
    });
    (!nowhere).then(|| said.map(|(name, _)| name.clone()).collect())
}

fn relative(root: &str, path: &str) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .trim_start_matches('/')
        .to_owned()
}

#[cfg(test)]
pub(super) mod fixtures {
    //! Packages and files made by hand, for the tests of the rules.
    use super::{Dependency, Kind, Package, SourceFile};

    pub(in crate::tidy) fn package(folder: &str, name: &str, normal: &[&str]) -> Package {
        let dependencies = normal
            .iter()
            .map(|name| Dependency {
                name: (*name).to_owned(),
                kind: Kind::Normal,
                requirement: "*".to_owned(),
                features: Vec::new(),
            })
            .collect();
        Package {
            name: name.to_owned(),
            manifest: format!("{folder}/Cargo.toml"),
            version: "0.1.0".to_owned(),
            published: None,
            dependencies,
        }
    }

    pub(in crate::tidy) fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::PathBuf;

    use super::*;

    #[test]
    fn metadata_is_read_with_kinds_and_relative_paths() {
        let text = r#"{"workspace_root":"/w","packages":[{"name":"ringfence-wal",
            "version":"0.1.0","publish":[],"keywords":["log"],"manifest_path":"/w/crates/wal/Cargo.toml",
            "dependencies":[{"name":"rustix","req":"^1.1","kind":null,"features":["fs"]},
            {"name":"tempfile","req":"^3","kind":"dev"},{"name":"prost","req":"*","kind":"build"}]}]}"#;

        let packages = parse_metadata(text).unwrap();

        assert_eq!(packages[0].name, "ringfence-wal");
        assert_eq!(packages[0].folder(), "crates/wal");
        let kinds: Vec<Kind> = packages[0]
            .dependencies
            .iter()
            .map(|found| found.kind)
            .collect();
        assert_eq!(kinds, [Kind::Normal, Kind::Dev, Kind::Build]);
        assert_eq!(packages[0].dependencies[0].features, ["fs"]);
        assert_eq!(packages[0].dependencies[0].requirement, "^1.1");
        assert_eq!(packages[0].published, None);
    }

    #[test]
    fn a_package_for_registries_is_read_with_the_settings_that_it_has() {
        let text = r#"{"name":"a","publish":null,"license":"Apache-2.0","readme":null,"keywords":[],
            "categories":["concurrency"]}"#;
        let package = serde_json::from_str(text).unwrap();

        let said = published(&package).unwrap();

        assert_eq!(said, ["categories", "license", "name"]);
    }

    #[test]
    fn metadata_of_another_form_is_an_error() {
        assert!(parse_metadata("{}").is_err());
        assert!(parse_metadata("no json").is_err());
    }

    /// A git repository that vanishes with its test.
    struct Repository(PathBuf);

    impl Repository {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("ringfence-tidy-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let mut git = Command::new("git");
            git.args(["init", "--quiet"]).current_dir(&folder);
            output_of(git, "git init").unwrap();
            Self(folder)
        }

        fn write(&self, path: &str, bytes: &[u8]) {
            std::fs::write(self.0.join(path), bytes).unwrap();
        }
    }

    impl Drop for Repository {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn untracked_files_count_and_ignored_or_binary_ones_do_not() {
        let repository = Repository::new("listing");
        repository.write(".gitignore", b"/target\n");
        repository.write("target", b"built");
        repository.write("golden.bin", &[0xff, 0xfe]);
        repository.write("LICENSE", b"theirs");
        repository.write("new.md", b"ours");

        let files = project_files(&repository.0).unwrap();

        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, [".gitignore", "new.md"]);
    }

    #[test]
    fn a_folder_that_git_does_not_know_is_an_error() {
        let message = project_files(Path::new("/")).unwrap_err();

        assert!(message.contains("git ls-files"), "{message}");
    }
}
