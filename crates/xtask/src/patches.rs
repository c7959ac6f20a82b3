//! Planted bugs that would distort the code they stand in: their branches are patches, one file for
//! each subject, applied to the sources while the programs with planted bugs are built.

use std::fs::{self, File};
use std::io;
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
    git_apply(root, &["--check"], patch)
}

/// The sources with all patches, until they are taken out. No other run patches them meanwhile.
#[derive(Debug)]
pub(crate) struct Patched<'a> {
    root: &'a Path,
    applied: Vec<PathBuf>,
    _lock: File,
}

impl<'a> Patched<'a> {
    /// Applies all patches but those that an interrupted run has left applied. Waits until another
    /// run has taken its patches out.
    ///
    /// # Errors
    /// A sentence, if one of them does not apply; then none is left applied.
    pub(crate) fn new(root: &'a Path) -> Result<Self, String> {
        let mut patched = Self {
            root,
            applied: Vec::new(),
            _lock: lock(root)?,
        };
        for patch in all(root)? {
            let left_applied = git_apply(root, &["--reverse", "--check"], &patch).is_ok();
            if !left_applied {
                git_apply(root, &[], &patch)?;
            }
            patched.applied.push(patch);
        }
        Ok(patched)
    }

    /// Takes the patches out.
    ///
    /// # Errors
    /// A sentence that names each patch that is still applied.
    pub(crate) fn take_out(mut self) -> Result<(), String> {
        self.reverse()
    }

    fn reverse(&mut self) -> Result<(), String> {
        let mut left = Vec::new();
        // One at a time: a patch that an edit has made irreversible must not keep the others applied.
        for patch in self.applied.drain(..) {
            if let Err(error) = git_apply(self.root, &["--reverse"], &patch) {
                left.push(format!("{} is still applied: {error}", patch.display()));
            }
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(left.join("\n")),
        }
    }
}

impl Drop for Patched<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.reverse() {
            eprintln!("{error}");
        }
    }
}

fn lock(root: &Path) -> Result<File, String> {
    let path = root.join("target/planted.lock");
    let unusable = |error: io::Error| format!("cannot lock {}: {error}", path.display());
    fs::create_dir_all(root.join("target")).map_err(unusable)?;
    let file = File::create(&path).map_err(unusable)?;
    file.lock().map_err(unusable)?;
    Ok(file)
}

/// One patch at a time: `git` applies all of it or nothing.
fn git_apply(root: &Path, options: &[&str], patch: &Path) -> Result<(), String> {
    let mut git = Command::new("git");
    git.arg("apply").args(options).arg(patch);
    let output = git.current_dir(root).output();
    let output = output.map_err(|error| format!("cannot start git: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace with the files `a` and `b`, each of one line, and a patch for each of them.
    fn workspace() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        fs::create_dir_all(root.path().join(FOLDER)).expect("a folder of our own");
        for name in ["a", "b"] {
            let patch = format!("--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-whole\n+planted\n");
            write(&root, &format!("{FOLDER}/{name}.patch"), &patch);
            write(&root, name, "whole\n");
        }
        root
    }

    fn write(root: &tempfile::TempDir, file: &str, text: &str) {
        fs::write(root.path().join(file), text).expect("a file of our own");
    }

    fn texts(root: &tempfile::TempDir) -> [String; 2] {
        ["a", "b"].map(|name| fs::read_to_string(root.path().join(name)).expect("our file"))
    }

    #[test]
    fn the_sources_are_patched_until_the_patches_are_taken_out() {
        let root = workspace();
        let patched = Patched::new(root.path()).expect("both apply");
        assert_eq!(texts(&root), ["planted\n", "planted\n"]);
        patched.take_out().expect("both are reversed");
        assert_eq!(texts(&root), ["whole\n", "whole\n"]);
    }

    #[test]
    fn what_an_interrupted_run_left_applied_is_taken_out() {
        let root = workspace();
        write(&root, "a", "planted\n");
        let patched = Patched::new(root.path()).expect("one applies, one is applied");
        patched.take_out().expect("both are reversed");
        assert_eq!(texts(&root), ["whole\n", "whole\n"]);
    }

    #[test]
    fn a_patch_that_does_not_apply_leaves_none_applied() {
        let root = workspace();
        write(&root, "b", "edited\n");
        let error = Patched::new(root.path()).expect_err("the second does not apply");
        assert!(error.contains("b:1"), "{error}");
        assert_eq!(texts(&root), ["whole\n", "edited\n"]);
    }

    #[test]
    fn an_edit_meanwhile_keeps_no_other_patch_applied_and_is_reported() {
        let root = workspace();
        let patched = Patched::new(root.path()).expect("both apply");
        write(&root, "a", "edited\n");
        let error = patched.take_out().expect_err("one cannot be reversed");
        assert!(error.contains("a.patch is still applied"), "{error}");
        assert_eq!(texts(&root), ["edited\n", "whole\n"]);
    }
}
