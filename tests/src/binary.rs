//! Where the server's binary is.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The `ringfence` binary of the build that these tests belong to.
///
/// `cargo test --workspace` has built it already. A test run of this package alone has not, or has
/// an old one: cargo is asked to bring it up to date, once per process.
///
/// # Panics
/// If cargo cannot build it.
#[must_use]
pub fn server() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let mut folder = std::env::current_exe().expect("a running test has a path");
        // target/PROFILE/deps/cluster-HASH
        folder.pop();
        folder.pop();
        let release = folder
            .file_name()
            .is_some_and(|profile| profile == "release");
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        build.args(["build", "--quiet", "--package", "ringfence"]);
        build.env(
            "CARGO_TARGET_DIR",
            folder.parent().expect("a profile stands in a target"),
        );
        if release {
            build.arg("--release");
        }
        let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        let status = status.expect("cargo starts, since it started this test");
        assert!(
            status.success(),
            "`cargo build --package ringfence` failed: {status}"
        );
        folder.join("ringfence")
    })
}
