//! `cargo xtask kubernetes`: builds the components of Kubernetes that tests start.

use std::path::Path;
use std::process::ExitCode;

use crate::cargo::cargo;

/// Builds them unless they are there; their folder is printed.
#[must_use]
pub fn run(root: &Path) -> ExitCode {
    let arguments = [
        "run",
        "--quiet",
        "--package",
        "ringfence-kubernetes",
        "--bin",
        "components",
    ];
    match cargo().args(arguments).current_dir(root).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
