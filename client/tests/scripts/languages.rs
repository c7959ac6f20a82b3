//! The programs under test in other languages, made ready.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn client() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What the build makes belongs there.
fn target() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

fn missing(what: &str, next: &str) -> ! {
    panic!("MISSING: {what}\n  what to do: {next}")
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    let also = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?} failed:\n{told}{also}");
    output
}

fn works(program: &str, arguments: &[&str]) -> bool {
    let tried = Command::new(program).args(arguments).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Builds the runner for the Go client: its own tests, which reach its clock.
pub(crate) fn go() -> PathBuf {
    // Where it is installed by hand it may not be on the path.
    let places = ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"];
    let found = places.into_iter().find(|go| works(go, &["version"]));
    let go = found.unwrap_or_else(|| {
        missing(
            "Go",
            "install Go 1.26 or later into /usr/local/go or onto the path",
        )
    });
    let program = target().join("go-script-runner");
    succeed(
        Command::new(go)
            .current_dir(client().join("go"))
            .args(["test", "-c", "-mod=readonly", "-o"])
            .arg(&program)
            .arg("."),
    );
    program
}

pub(crate) fn go_runner(program: &Path) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(program);
    command.env("RINGFENCE_SCRIPT_RUNNER", "1");
    command
}

/// A Python with what the Python client needs; the client itself is taken from its sources.
pub(crate) fn python() -> PathBuf {
    let folder = target().join("python-scripts");
    let python = folder.join("bin/python");
    let needed = "import grpc, google.protobuf";
    let is_ready = || {
        let tried = Command::new(&python).args(["-c", needed]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    if is_ready() {
        return python;
    }
    if !works("python3", &["-c", "import ensurepip, venv"]) {
        missing(
            "Python 3.9 or later with venv",
            "install python3 and python3-venv",
        );
    }
    succeed(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder),
    );
    let pip = ["-m", "pip", "install", "--quiet"];
    succeed(
        Command::new(&python)
            .args(pip)
            .arg("--disable-pip-version-check")
            .arg(client().join("python")),
    );
    python
}

pub(crate) fn python_runner(python: &Path) -> tokio::process::Command {
    let folder = client().join("python");
    let mut command = tokio::process::Command::new(python);
    command
        .arg(folder.join("tests/script_runner.py"))
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
