//! The cargo that this process calls.

use std::process::Command;

/// The cargo that started this process, free of what it says about this package: build scripts
/// look at some of those variables, and would rebuild what a direct `cargo` call built before.
pub(crate) fn cargo() -> Command {
    let mut process = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            process.env_remove(name);
        }
    }
    process
}
