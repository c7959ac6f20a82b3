//! `cargo xtask kubernetes`, `cargo xtask s3` and `cargo xtask etcd`: build the servers that tests start and no package
//! has.

use std::path::Path;
use std::process::ExitCode;

use crate::cargo::cargo;

/// Builds the components of Kubernetes unless they are there; their folder is printed.
#[must_use]
pub fn kubernetes(root: &Path) -> ExitCode {
    run(root, &["ringfence-kubernetes", "--bin", "components"])
}

/// Builds the server of S3 unless it is there; its path is printed.
#[must_use]
pub fn s3(root: &Path) -> ExitCode {
    let features = ["--features", "programs"];
    run(
        root,
        &[&["ringfence-testkit", "--bin", "s3-server"], &features[..]].concat(),
    )
}

/// Builds etcd unless it is there; its path is printed.
#[must_use]
pub fn etcd(root: &Path) -> ExitCode {
    let features = ["--features", "programs"];
    run(
        root,
        &[
            &["ringfence-testkit", "--bin", "etcd-server"],
            &features[..],
        ]
        .concat(),
    )
}

/// Runs a program of this package.
fn run(root: &Path, package: &[&str]) -> ExitCode {
    let mut cargo = cargo();
    cargo.args(["run", "--quiet", "--package"]).args(package);
    match cargo.current_dir(root).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
