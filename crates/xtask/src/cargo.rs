//! The cargo that this process calls.

use std::ffi::OsString;
use std::process::Command;

/// The cargo that started this process, free of what it says about this package.
pub(crate) fn cargo() -> Command {
    free(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A program that calls cargo, free of what cargo says about this package: build scripts look at
/// some of those variables, and would rebuild what a direct `cargo` call built before.
pub(crate) fn free(program: impl Into<OsString>) -> Command {
    let mut process = Command::new(program.into());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            process.env_remove(name);
        }
    }
    process
}
