//! The Debian package of `deploy/debian`: built from this program, installed below a folder, removed
//! and purged there. `unit.rs` has systemd judge the same unit.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

/// What builds and installs a package, each with the package of Debian that has it.
const TOOLS: [(&str, &str); 5] = [
    ("dpkg-deb", "dpkg"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("deb-systemd-helper", "init-system-helpers"),
    ("systemd-sysusers", "systemd"),
    ("strip", "binutils"),
];

/// Each file that matters, with its mode and its group.
const INSTALLED: [(&str, u32, &str); 13] = [
    ("usr/bin/ringfence", 0o755, "root"),
    ("usr/lib/systemd/system/ringfence.service", 0o644, "root"),
    ("usr/lib/sysusers.d/ringfence.conf", 0o644, "root"),
    ("usr/lib/tmpfiles.d/ringfence.conf", 0o644, "root"),
    ("etc/ringfence", 0o750, "ringfence"),
    ("etc/ringfence/ringfence.toml", 0o644, "root"),
    ("usr/share/man/man1/ringfence-serve.1.gz", 0o644, "root"),
    ("usr/share/doc/ringfence/copyright", 0o644, "root"),
    ("usr/share/doc/ringfence/changelog.gz", 0o644, "root"),
    // What messages and alarms lead to.
    ("usr/share/doc/ringfence/RECOVERY.md", 0o644, "root"),
    (
        "usr/share/doc/ringfence/prometheus/rules.yaml",
        0o644,
        "root",
    ),
    (
        "usr/share/bash-completion/completions/ringfence",
        0o644,
        "root",
    ),
    ("usr/share/zsh/vendor-completions/_ringfence", 0o644, "root"),
];

const SETTINGS: &str = "etc/ringfence/ringfence.toml";
const LINK: &str = "etc/systemd/system/multi-user.target.wants/ringfence.service";

/// A machine of dpkg below a folder: packages are installed there, and their scripts run here with
/// `DPKG_ROOT`.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        for folder in ["info", "updates", "triggers"] {
            std::fs::create_dir_all(root.path().join("var/lib/dpkg").join(folder)).unwrap();
        }
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("var/lib/dpkg/status"), "").unwrap();
        Self { root }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// `dpkg` with these words, without a terminal: a question would be a failure.
    fn dpkg(&self, words: &[&str]) -> String {
        let mut command = Command::new("dpkg");
        command
            .arg(format!("--root={}", self.root.path().display()))
            // Nothing else is installed there, and nothing needs to outlive a loss of power.
            .args([
                "--force-depends",
                "--force-script-chrootless",
                "--force-unsafe-io",
            ])
            .args(words);
        said(&mut command)
    }

    fn install(&self, package: &Path) -> String {
        self.dpkg(&["--install", package.to_str().unwrap()])
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), text).unwrap();
    }

    fn enabled(&self) -> bool {
        self.at(LINK).symlink_metadata().is_ok()
    }

    /// The numbers of the account and of the group `ringfence` there.
    fn account(&self) -> (u32, u32) {
        let passwd = std::fs::read_to_string(self.at("etc/passwd")).unwrap();
        let line = passwd.lines().find(|line| line.starts_with("ringfence:"));
        let fields: Vec<&str> = line.expect(&passwd).split(':').collect();
        assert_eq!(fields[5..], ["/var/lib/ringfence", "/usr/sbin/nologin"]);
        (fields[2].parse().unwrap(), fields[3].parse().unwrap())
    }
}

/// What a command that succeeds says.
fn said(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.stdin(std::process::Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    assert!(status.success(), "{command:?}: {status}\n{text}");
    text
}

fn build() -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(root.join("deploy/debian/build"));
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    command
}

/// What these tests make once, and the next run again.
fn made(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Builds the package of this program, without what a debugger reads.
fn build_package(name: &str) -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let program = made("ringfence");
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&program);
        said(strip.arg(env!("CARGO_BIN_EXE_ringfence")));
        program
    });
    let package = made(name);
    let mut build = build();
    build.arg("--binary").arg(program);
    said(build.arg("--output").arg(&package));
    package
}

fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| build_package("ringfence.deb"))
}

/// Whether this machine can build and install packages; a loud line if not, and a failure in CI.
fn can_install() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &str| std::env::split_paths(&path).any(|at| at.join(tool).is_file());
    let mut lacking: Vec<&str> = TOOLS
        .iter()
        .filter(|(tool, _)| !there(tool))
        .map(|(_, package)| *package)
        .collect();
    // Files of other accounts are made there.
    if !rustix::process::geteuid().is_root() {
        lacking.push("the rights of root");
    }
    if lacking.is_empty() {
        return true;
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci, "a Debian package needs {}", lacking.join(", "));
    eprintln!(
        "NOT TESTED: the Debian package needs {}",
        lacking.join(", ")
    );
    false
}

#[test]
fn a_package_makes_an_account_and_starts_no_node_without_settings() {
    if !can_install() {
        return;
    }
    let package = package();
    let machine = Machine::new();
    machine.install(package);

    let (user, group) = machine.account();
    for (path, mode, of) in INSTALLED {
        let found = machine.at(path).metadata().expect(path);
        let group = if of == "root" { 0 } else { group };
        assert_eq!(
            format!("{:o}", found.mode() & 0o7777),
            format!("{mode:o}"),
            "{path}"
        );
        assert_eq!((found.uid(), found.gid()), (0, group), "{path}");
    }
    assert!(user > 0 && group > 0);
    let unit = std::fs::read(machine.at("usr/lib/systemd/system/ringfence.service")).unwrap();
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd/ringfence.service");
    assert_eq!(unit, std::fs::read(ours).unwrap());
    assert!(!machine.enabled());

    // What the package brings is no configuration of a node.
    let mut node = Command::new(machine.at("usr/bin/ringfence"));
    node.arg("serve").arg("--config").arg(machine.at(SETTINGS));
    let refused = node
        .arg("--data-dir")
        .arg(machine.at("data"))
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("say --access enforced"),
        "{why}"
    );

    // The libraries that the program names are those of the package.
    let field = |name: &str| {
        let mut field = Command::new("dpkg-deb");
        said(field.arg("--field").arg(package).arg(name))
    };
    let depends = field("Depends");
    let mut ldd = Command::new("ldd");
    let linked = said(ldd.arg(env!("CARGO_BIN_EXE_ringfence")));
    let is_static = linked.contains("statically linked");
    assert_eq!(depends.contains("libc6 (>= "), !is_static, "{depends}");
    assert!(depends.contains("systemd | "), "{depends}");
    assert!(field("Version").starts_with(env!("CARGO_PKG_VERSION")));

    // A machine that never had a node has nothing left, and reads nothing of it.
    let words = machine.dpkg(&["--purge", "ringfence"]);
    assert!(!words.contains("is left"), "{words}");
    assert!(!machine.at("etc/ringfence").exists() && !machine.at("usr").exists());
}

#[test]
fn an_upgrade_keeps_settings_and_a_purge_deletes_no_data() {
    if !can_install() {
        return;
    }
    let package = package();
    let machine = Machine::new();
    machine.install(package);
    machine.write(SETTINGS, "name = \"n2\"\n");
    machine.write("etc/ringfence/cluster.secret", "0011");
    machine.write("var/lib/ringfence/identity", "n2");
    let mut enable = Command::new("systemctl");
    said(
        enable
            .arg("--root")
            .arg(machine.root.path())
            .args(["enable", "ringfence"]),
    );

    machine.install(package);
    let settings = || std::fs::read_to_string(machine.at(SETTINGS)).unwrap();
    assert_eq!(settings(), "name = \"n2\"\n");
    assert!(
        machine.enabled(),
        "an upgrade keeps what an operator enabled"
    );
    let mode = machine.at("etc/ringfence").metadata().unwrap().mode();
    assert_eq!(format!("{:o}", mode & 0o7777), "750");

    machine.dpkg(&["--remove", "ringfence"]);
    assert!(!machine.at("usr/bin/ringfence").exists());
    assert_eq!(settings(), "name = \"n2\"\n");

    let words = machine.dpkg(&["--purge", "ringfence"]);
    assert!(words.contains("rm -r /var/lib/ringfence"), "{words}");
    assert!(words.contains("rm -r /etc/ringfence"), "{words}");
    assert!(!machine.at(SETTINGS).exists() && !machine.enabled());
    assert!(machine.at("etc/ringfence/cluster.secret").exists());
    assert!(machine.at("var/lib/ringfence/identity").exists());
    assert!(
        machine.account().0 > 0,
        "its files belong to an account that is there"
    );
}

#[test]
fn the_same_program_makes_the_same_package() {
    if !can_install() {
        return;
    }
    let [first, second] = [package(), &build_package("again.deb")].map(std::fs::read);
    assert!(first.unwrap() == second.unwrap());
}

#[test]
fn what_is_no_program_of_this_version_makes_no_package() {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\necho ringfence 0.0.1\n").unwrap();
    let script = script.to_str().unwrap();
    for (words, code, why) in [
        (
            &["--binary", script][..],
            1,
            "is no program for amd64 or arm64",
        ),
        (
            &["--binary", "/nowhere/ringfence"],
            1,
            "there is no program /nowhere/ringfence",
        ),
        (&["--binary", "/bin/true"], 1, "says `true"),
        (&["--sign"], 2, "there are --binary FILE and --output FILE"),
        (&["--output"], 2, "--output wants a value"),
    ] {
        let output = build().args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}
