//! `cargo xtask upgrade`: builds an older release from this repository's history, and rolls a
//! cluster of it to this build under load.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::cargo::cargo;

/// The last commit before principals and rights: 0.1.0 as the first users had it.
const OLDER: &str = "cdadd79";

/// Builds what is missing and runs the test; minutes. What was built stays in `target/upgrade`.
#[must_use]
pub fn run(root: &Path) -> ExitCode {
    match older(root).and_then(|server| roll(root, &server)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("upgrade FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The older release's program.
fn older(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/upgrade");
    let source = folder.join(OLDER);
    let built = folder.join("build");
    let server = built.join("debug").join("ringfence");
    let kept = folder.join(format!("ringfence-{OLDER}"));
    if kept.is_file() {
        return Ok(kept);
    }
    println!("== the release of commit {OLDER}, once");
    std::fs::create_dir_all(&source).map_err(|why| format!("{}: {why}", source.display()))?;
    let archive = folder.join("source.tar");
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar", "--output"])
        .arg(&archive)
        .arg(OLDER)
        .current_dir(root);
    succeeds(git).map_err(|why| format!("{why}; a clone without history lacks that commit"))?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&archive).arg("-C").arg(&source);
    succeeds(tar)?;
    let mut build = cargo();
    build
        .args(["build", "--package", "ringfence", "--bin", "ringfence"])
        .env("CARGO_TARGET_DIR", &built)
        .current_dir(&source);
    succeeds(build)?;
    std::fs::rename(&server, &kept).map_err(|why| format!("{}: {why}", server.display()))?;
    // Only the program is used again.
    for made in [source, built] {
        std::fs::remove_dir_all(&made).map_err(|why| format!("{}: {why}", made.display()))?;
    }
    Ok(kept)
}

fn roll(root: &Path, older: &Path) -> Result<(), String> {
    // Of the whole workspace, so that it is built with the features that `cargo test` has.
    let mut test = cargo();
    test.args(["test", "--workspace", "--test", "upgrade"])
        .args(["--", "--nocapture"])
        .env("RINGFENCE_OLDER_SERVER", older)
        .current_dir(root);
    succeeds(test)
}

fn succeeds(mut command: Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(why) => Err(format!("{command:?}: {why}")),
    }
}
