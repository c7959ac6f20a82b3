//! `cargo xtask test-node`: builds the image and the test of a real node of Kubernetes, and runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::cargo::cargo;

/// Runs the test of the overlays, or that of the chart; its exit code is this one's. The programs are built by the caller, and
/// only the last step needs root.
#[must_use]
pub fn run(root: &Path, chart: bool) -> ExitCode {
    let story = if chart { "chart" } else { "overlays" };
    match build(root, chart).and_then(|built| start(root, &built, story)) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("test-node FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

struct Built {
    program: PathBuf,
    images: PathBuf,
    folder: PathBuf,
}

fn build(root: &Path, chart: bool) -> Result<Built, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), |target| root.join(target));
    let images = target.join("image");
    // A quick build: what is shown here does not depend on how fast a node is.
    let script = Command::new(root.join("deploy/image/build"))
        .args(["--profile", "dev", "--output"])
        .arg(images.join("ringfence-dev.tar"))
        .current_dir(root)
        .status();
    succeeded("deploy/image/build", script)?;
    if !chart {
        build_controller(root, &target, &images)?;
    }
    let program = [
        "build",
        "--package",
        "ringfence-kubernetes",
        "--bin",
        "test-node",
    ];
    let built = cargo().args(program).current_dir(root).status();
    succeeded("cargo build", built)?;
    Ok(Built {
        program: target.join("debug").join("test-node"),
        images,
        folder: target.join("test-node"),
    })
}

/// The example, as its README has it.
fn build_controller(root: &Path, target: &Path, images: &Path) -> Result<(), String> {
    let example = [
        "rustc",
        "--package",
        "ringfence-fenced-controller",
        "--bin",
        "fenced-controller",
        "--",
        "-C",
        "target-feature=+crt-static",
        "-C",
        "strip=symbols",
    ];
    let built = cargo().args(example).current_dir(root).status();
    succeeded("cargo rustc", built)?;
    let script = Command::new(root.join("deploy/image/build"))
        .arg("--binary")
        .arg(target.join("debug").join("fenced-controller"))
        .args(["--tag", "fenced-controller:0.1.0", "--output"])
        .arg(images.join("fenced-controller.tar"))
        .current_dir(root)
        .status();
    succeeded("deploy/image/build", script)
}

fn succeeded(what: &str, status: std::io::Result<std::process::ExitStatus>) -> Result<(), String> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what} ended with {status}")),
        Err(error) => Err(format!("cannot start {what}: {error}")),
    }
}

fn start(root: &Path, built: &Built, story: &str) -> Result<ExitCode, String> {
    let mut command = as_root(&built.program);
    let status = command
        .arg("outside")
        .args([&built.images, root, &built.folder])
        .arg(story)
        .status();
    let status = status.map_err(|error| format!("cannot start the test: {error}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// With sudo, if this is not root: `-n`, since there may be no person to type a password.
fn as_root(program: &Path) -> Command {
    let id = Command::new("id").arg("-u").output();
    let is_root = id.is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    if is_root {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    let kept =
        "--preserve-env=HOME,PATH,CI,XDG_CACHE_HOME,KUBEBUILDER_ASSETS,RINGFENCE_KUBERNETES_CACHE";
    command.args(["-n", kept]).arg(program);
    command
}
