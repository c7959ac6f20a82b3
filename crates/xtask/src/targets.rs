//! `cargo xtask targets`: checks that what is for other systems compiles for them.
//!
//! Nothing is linked or run. The C code among the dependencies is compiled by Zig's compiler, which
//! has the headers of every target; it comes as a Python package into `target/zig`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::cargo::free;

/// A system to compile for, and what is for it.
struct Target {
    triple: &'static str,
    packages: &'static [&'static str],
}

const TARGETS: &[Target] = &[
    Target {
        triple: "aarch64-apple-darwin",
        packages: &["ringfence", "ringfence-client", "ringfence-guard"],
    },
    Target {
        triple: "x86_64-pc-windows-gnu",
        packages: &["ringfence-client"],
    },
];

/// What compiles C for other systems: a cargo command, which brings the package `ziglang`.
const ZIGBUILD: &str = "cargo-zigbuild==0.24.0";
const ZIG: &str = "ziglang==0.17.1";

/// Checks every target. What is missing is installed; where that fails a loud line says so, which
/// is a failure if `CI` is `true`.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "how long a check took is for the person at the terminal; nothing is decided by it"
)]
pub fn run(root: &Path) -> ExitCode {
    let zig = root.join("target/zig");
    if let Err(missing) = prepare(&zig) {
        eprintln!("\nNOT CHECKED: other systems; {missing}\n");
        let ci = std::env::var("CI").is_ok_and(|value| value == "true");
        return ExitCode::from(u8::from(ci));
    }
    for target in TARGETS {
        let start = Instant::now();
        println!("== {}: {}", target.triple, target.packages.join(", "));
        if let Err(why) = check(target, root, &zig) {
            eprintln!(
                "targets FAILED at {}: {why}\n  what needs one system stands behind one module of \
                 its crate: `system` in wal, `elsewhere` in chaos, `tether` in the server",
                target.triple
            );
            return ExitCode::FAILURE;
        }
        println!("   passed ({:.1} s)", start.elapsed().as_secs_f64());
    }
    ExitCode::SUCCESS
}

/// Installs what is not there: standard libraries by rustup, the C compiler by pip.
fn prepare(zig: &Path) -> Result<(), String> {
    let triples = TARGETS.iter().map(|target| target.triple);
    let mut rustup = Command::new("rustup");
    rustup.args(["--quiet", "target", "add"]).args(triples);
    succeeds(&mut rustup).map_err(|why| {
        format!("{why}; install the standard libraries of these targets, by rustup for example")
    })?;
    if program(zig).is_file() {
        return Ok(());
    }
    println!("== {ZIGBUILD} and {ZIG} into {}", zig.display());
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade"])
        .args(["--disable-pip-version-check", "--no-warn-script-location"])
        .args(["--root-user-action", "ignore"])
        .arg("--target")
        .arg(zig)
        .args([ZIGBUILD, ZIG]);
    succeeds(&mut pip).map_err(|why| format!("{why}; python3 with pip and its registry are needed"))
}

fn program(zig: &Path) -> PathBuf {
    zig.join("bin/cargo-zigbuild")
}

fn check(target: &Target, root: &Path, zig: &Path) -> Result<(), String> {
    let mut command = free(program(zig));
    command
        .args(["check", "--quiet", "--all-features"])
        .args(["--target", target.triple])
        .args(target.packages.iter().flat_map(|name| ["--package", name]))
        // Flags of the C compiler differ from those of a build for this system.
        .arg("--target-dir")
        .arg(root.join("target/targets"))
        .env("PYTHONPATH", zig)
        .current_dir(root);
    succeeds(&mut command)
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} ended with {status}")),
        Err(error) => Err(format!("cannot start {name}: {error}")),
    }
}
