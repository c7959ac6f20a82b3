//! Programs of this workspace that tests start.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The `ringfence` binary of the build that these tests belong to.
///
/// # Panics
/// If cargo cannot build it.
#[must_use]
pub fn server() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| built(&["--bin", "ringfence"]).join("ringfence"))
}

/// Brings programs of this workspace up to date; `what` selects them as `cargo build` understands
/// it. Returns the folder that binaries are in; examples are in its folder `examples`.
///
/// After `cargo test --workspace` they are up to date, and nothing is compiled. A test run of one
/// package alone has not built them, or has old ones.
///
/// # Panics
/// If cargo cannot build them.
#[must_use]
pub fn built(what: &[&str]) -> PathBuf {
    let mut folder = std::env::current_exe().expect("a running test has a path");
    // target/PROFILE/deps/cluster-HASH
    folder.pop();
    folder.pop();
    let mut build = cargo();
    build.args(["build", "--quiet"]).args(TOGETHER).args(what);
    build.env(
        "CARGO_TARGET_DIR",
        folder.parent().expect("a profile stands in a target"),
    );
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    let status = status.expect("cargo starts, since it started this test");
    assert!(status.success(), "{build:?} failed: {status}");
    folder
}

/// The cargo that runs this test, free of what it says about the test's package: build scripts look
/// at some of those variables, and would compile again what `cargo test` has just compiled.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        // `ring` looks at all of them.
        let of_the_test = name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if of_the_test || name == "OUT_DIR" {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// What makes cargo choose the features that `cargo test --workspace` builds everything with: those
/// that any package of the workspace asks for, and any test. With others (`--package ringfence`
/// asks for fewer) most of the server and of what it stands on would be compiled a second time. A
/// test has to be among what is built, or cargo leaves out what tests ask for; the one named here
/// stands on nothing.
const TOGETHER: [&str; 3] = ["--workspace", "--test", "off"];
