//! `cargo xtask arm64`: builds the program and the image for arm64 on a machine of another kind, and
//! runs the program under an emulator of its instructions.
//!
//! The emulator is qemu in user mode: it translates one process and passes its system calls to the
//! kernel of this machine. What only real hardware shows, such as its order of memory accesses, its page
//! size and its speed, is not shown.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::cargo::cargo;

const TRIPLE: &str = "aarch64-unknown-linux-gnu";
/// Runs one process of arm64.
const EMULATOR: &str = "qemu-aarch64";
/// Links for arm64, against a static C library.
const COMPILER: &str = "aarch64-linux-gnu-gcc";

/// Builds, and runs what was built; minutes. What is missing is named with what to do, which is a
/// failure.
#[must_use]
pub fn run(root: &Path) -> ExitCode {
    match shown(root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("arm64 FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

fn shown(root: &Path) -> Result<(), String> {
    let emulator = program(EMULATOR, "install qemu-user")?;
    program(
        COMPILER,
        "install gcc-aarch64-linux-gnu and libc6-dev-arm64-cross",
    )?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), |target| root.join(target));

    println!("== the image for arm64");
    let mut build = Command::new(root.join("deploy/image/build"));
    // A quick build: what is shown here does not depend on how fast a node is.
    build.args(["--arch", "arm64", "--profile", "dev"]);
    succeeds(build.current_dir(root))?;

    println!("== three nodes under {EMULATOR}");
    let built = target.join(TRIPLE).join("debug/ringfence");
    let emulated = wrapper(&target.join(TRIPLE), &emulator, &built)?;
    let mut test = cargo();
    // Of the whole workspace, so that it is built with the features that `cargo test` has.
    test.args(["test", "--workspace", "--test", "emulated"])
        .args(["--", "--nocapture"])
        .env("RINGFENCE_EMULATED", &emulated);
    succeeds(test.current_dir(root))
}

/// The path of a program.
fn program(name: &str, what_to_do: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|place| place.join(name));
    places
        .find(|place| place.is_file())
        .ok_or_else(|| format!("no {name}; {what_to_do}"))
}

/// A script that runs a program under the emulator: tests start a node as one program, with an empty
/// environment.
fn wrapper(folder: &Path, emulator: &Path, built: &Path) -> Result<PathBuf, String> {
    let path = folder.join("ringfence-emulated");
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    let script = format!(
        "#!/bin/sh\nexec '{}' '{}' \"$@\"\n",
        emulator.display(),
        built.display()
    );
    fs::write(&path, script).map_err(said)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(said)?;
    Ok(path)
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} ended with {status}")),
        Err(error) => Err(format!("cannot start {name}: {error}")),
    }
}
