//! `cargo xtask older-kubernetes`: the tests that need an API server and nothing newer, with API servers of
//! older versions.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::cargo::cargo;

/// What runs with each of them: a test program, and filters behind it. What needs policies that change
/// writes needs Kubernetes 1.36; of `fencing`, only the webhook and policies without mutation do not.
const TESTS: [(&str, &[&str]); 4] = [
    ("kubernetes", &[]),
    ("pods", &[]),
    ("chart", &[]),
    ("fencing", &["webhook::", "without_mutation"]),
];

/// What is asked for.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Only these versions, as in 1.30; all that there are else
    #[arg(value_name = "VERSION")]
    versions: Vec<String>,
}

/// Builds what is missing, and runs the tests with one version after the other.
#[must_use]
pub fn run(request: &Request, root: &Path) -> ExitCode {
    match versions(request, root).and_then(|versions| tested(root, &versions)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("older-kubernetes FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The versions that are asked for, all built.
fn versions(request: &Request, root: &Path) -> Result<Vec<String>, String> {
    let mut build = cargo();
    build
        .args(["run", "--quiet", "--package", "ringfence-kubernetes"])
        .args(["--bin", "older", "--"])
        .args(&request.versions)
        .current_dir(root)
        .stderr(Stdio::inherit());
    let output = build.output();
    let output = output.map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("the build ended with {}", output.status));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    Ok(printed.lines().map(str::to_owned).collect())
}

fn tested(root: &Path, versions: &[String]) -> Result<(), String> {
    for version in versions {
        for (test, filters) in TESTS {
            println!("== Kubernetes {version}: {test} {}", filters.join(" "));
            let mut command = cargo();
            command
                .args(["test", "--workspace", "--test", test])
                .arg("--")
                .args(filters)
                .env("RINGFENCE_KUBERNETES_VERSION", version)
                .current_dir(root);
            succeeds(&mut command).map_err(|why| format!("{test} with {version}: {why}"))?;
        }
    }
    Ok(())
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo ended with {status}")),
        Err(error) => Err(format!("cannot start cargo: {error}")),
    }
}
