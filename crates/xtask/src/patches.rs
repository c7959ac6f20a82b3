//! Planted bugs that would distort the code they stand in: their branches are patches, one file for
//! each subject, applied to the sources while the programs with planted bugs are built.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the patches are, from the root of the workspace. No two of them change the same file.
pub(crate) const FOLDER: &str = "crates/planted/patches";

/// The patches in the order of their names.
///
/// # Errors
/// A sentence, if the folder cannot be read.
pub(crate) fn all(root: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("cannot read {FOLDER}: {error}");
    let entries = root.join(FOLDER).read_dir().map_err(unreadable)?;
    let mut patches = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|found| found == "patch") {
            patches.push(path);
        }
    }
    patches.sort();
    Ok(patches)
}

/// Whether the sources are as the patch expects them.
///
/// # Errors
/// What `git` says, if they are not, or it cannot be started.
pub(crate) fn check(root: &Path, patch: &Path) -> Result<(), String> {
    git_apply(root, &["--check"], &[patch.to_owned()])
}

/// The sources with all patches, until it is dropped.
#[derive(Debug)]
pub(crate) struct Patched<'a> {
    root: &'a Path,
    patches: Vec<PathBuf>,
}

impl<'a> Patched<'a> {
    /// Applies all patches, unless a run that was interrupted has left them applied.
    ///
    /// # Errors
    /// A sentence, if one of them does not apply.
    pub(crate) fn new(root: &'a Path) -> Result<Self, String> {
        let patches = all(root)?;
        let left_applied = git_apply(root, &["--reverse", "--check"], &patches).is_ok();
        if !left_applied {
            git_apply(root, &[], &patches)?;
        }
        Ok(Self { root, patches })
    }
}

impl Drop for Patched<'_> {
    fn drop(&mut self) {
        if let Err(error) = git_apply(self.root, &["--reverse"], &self.patches) {
            eprintln!("== the patches of {FOLDER} are still applied: {error}");
        }
    }
}

fn git_apply(root: &Path, options: &[&str], patches: &[PathBuf]) -> Result<(), String> {
    let mut git = Command::new("git");
    git.arg("apply").args(options).args(patches);
    let output = git.current_dir(root).output();
    let output = output.map_err(|error| format!("cannot start git: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
