//! `cargo xtask sim`: builds the simulation for speed and runs it.

use std::path::Path;
use std::process::ExitCode;

use crate::cargo::cargo;

/// A profile of its own: optimized, and yet overflows are found.
const BEFORE: &[&str] = &[
    "run",
    "--quiet",
    "--profile",
    "sim",
    "--package",
    "ringfence-sim",
    "--",
];

/// Runs the simulation with the words behind `sim`; its exit code is this one's.
#[must_use]
pub fn run(words: &[String], root: &Path) -> ExitCode {
    let ran = cargo().args(BEFORE).args(words).current_dir(root).status();
    match ran {
        Ok(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            ExitCode::from(code.unwrap_or(1))
        }
        Err(error) => {
            eprintln!("cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
