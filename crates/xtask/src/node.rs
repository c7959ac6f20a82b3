//! `cargo xtask test-node`: builds the image and the test of a real node of Kubernetes, and runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::cargo::cargo;

/// Runs the test of the overlays, or that of the chart; its exit code is this one's. The programs are built first, unless
/// they are there, and only the last step needs root.
#[must_use]
pub fn run(root: &Path, chart: bool, built: bool) -> ExitCode {
    let story = if chart { "chart" } else { "overlays" };
    let programs = Programs::of(root, built);
    let packed = programs.and_then(|programs| pack(root, &programs, chart));
    match packed.and_then(|packed| start(root, &packed, story)) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("test-node FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Where the programs are, or will be.
struct Programs {
    target: PathBuf,
    folder: PathBuf,
    built: bool,
}

struct Packed {
    test: PathBuf,
    images: PathBuf,
    folder: PathBuf,
}

impl Programs {
    fn of(root: &Path, built: bool) -> Result<Self, String> {
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| root.join("target"), |target| root.join(target));
        let programs = Self {
            folder: target.join("debug"),
            target,
            built,
        };
        for name in ["ringfence", "fenced-controller", "test-node"] {
            if built && !programs.named(name).is_file() {
                return Err(format!(
                    "{} is not there; see `link_programs_of_images` in .ci/run, or leave --built out",
                    programs.named(name).display()
                ));
            }
        }
        Ok(programs)
    }

    fn named(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn pack(root: &Path, programs: &Programs, chart: bool) -> Result<Packed, String> {
    let images = programs.target.join("image");
    let node = images.join("ringfence-dev.tar");
    if chart {
        link(root, programs, &images)?;
    }
    if programs.built {
        image(root, &programs.named("ringfence"), "ringfence", &node)?;
    } else {
        // A quick build: what is shown here does not depend on how fast a node is.
        let script = Command::new(root.join("deploy/image/build"))
            .args(["--profile", "dev", "--output"])
            .arg(node)
            .current_dir(root)
            .status();
        succeeded("deploy/image/build", script)?;
        build(
            &["build", "--package", "ringfence-kubernetes", "--bin"],
            root,
            "test-node",
            &[],
        )?;
    }
    if !chart {
        let name = "fenced-controller";
        if !programs.built {
            let package = ["rustc", "--package", "ringfence-fenced-controller", "--bin"];
            // As the README of the example has it.
            let linked = "--, -C, target-feature=+crt-static, -C, strip=symbols";
            build(
                &package,
                root,
                name,
                &linked.split(", ").collect::<Vec<_>>(),
            )?;
        }
        let archive = images.join("fenced-controller.tar");
        image(root, &programs.named(name), name, &archive)?;
    }
    Ok(Packed {
        test: programs.named("test-node"),
        images,
        folder: programs.target.join("test-node"),
    })
}

/// The program with the libraries of this machine, for the image with a clock of its own.
fn link(root: &Path, programs: &Programs, images: &Path) -> Result<(), String> {
    let linked = images.join("ringfence-linked");
    if programs.built && linked.is_file() {
        return Ok(());
    }
    if programs.built {
        return Err(format!(
            "{} is not there: leave --built out",
            linked.display()
        ));
    }
    build(
        &["build", "--package", "ringfence", "--bin"],
        root,
        "ringfence",
        &[],
    )?;
    let copied = std::fs::create_dir_all(images)
        .and_then(|()| std::fs::copy(programs.named("ringfence"), &linked));
    copied
        .map(drop)
        .map_err(|error| format!("{}: {error}", linked.display()))
}

fn build(command: &[&str], root: &Path, program: &str, more: &[&str]) -> Result<(), String> {
    let mut cargo = cargo();
    let built = cargo.args(command).arg(program).args(more);
    succeeded("cargo", built.current_dir(root).status())
}

/// Makes the image of a program that is there.
fn image(root: &Path, program: &Path, name: &str, archive: &Path) -> Result<(), String> {
    let script = Command::new(root.join("deploy/image/build"))
        .arg("--binary")
        .arg(program)
        .args(["--tag", &format!("{name}:0.1.0"), "--output"])
        .arg(archive)
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

fn start(root: &Path, packed: &Packed, story: &str) -> Result<ExitCode, String> {
    let mut command = as_root(&packed.test);
    let status = command
        .arg("outside")
        .args([packed.images.as_path(), root, &packed.folder])
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
