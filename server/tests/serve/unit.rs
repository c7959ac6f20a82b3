//! The unit of systemd in `deploy/systemd`: a service manager takes it, and its command starts a node.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::process::{PATIENCE, Ports, command};

/// The most exposure that `systemd-analyze security` may find, in tenths; it finds 1.4.
const EXPOSURE_MAX: &str = "14";

fn unit() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
    std::fs::read_to_string(folder.join("ringfence.service")).unwrap()
}

/// The unit with a program that is there.
fn installed(folder: &Path) -> PathBuf {
    let path = folder.join("ringfence.service");
    let text = unit().replace("/usr/bin/ringfence", env!("CARGO_BIN_EXE_ringfence"));
    std::fs::write(&path, text).unwrap();
    path
}

/// What `systemd-analyze` says; `None` if it is not there.
fn analyzed(words: &[&str], unit: &Path) -> Option<(bool, String)> {
    match Command::new("systemd-analyze")
        .args(words)
        .arg(unit)
        .output()
    {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            Some((output.status.success(), said))
        }
        Err(error) => {
            let ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!ci, "systemd-analyze, of Debian's package systemd: {error}");
            eprintln!("NOT TESTED: no systemd-analyze: {error}");
            None
        }
    }
}

#[test]
fn systemd_takes_the_unit_and_finds_it_confined() {
    let folder = TempDir::new().unwrap();
    let unit = installed(folder.path());
    let Some((good, said)) = analyzed(&["verify", "--man=no"], &unit) else {
        return;
    };
    assert!(good, "{said}");
    let ours = said
        .lines()
        .filter(|line| line.contains("ringfence.service"));
    assert_eq!(ours.count(), 0, "{said}");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let words = ["security", "--offline=true", "--no-pager", &threshold];
    let (good, said) = analyzed(&words, &unit).unwrap();
    assert!(good, "{said}");
    assert!(said.contains("Overall exposure level"), "{said}");
}

#[test]
fn the_command_of_the_unit_starts_a_node_that_notifies() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let manager = UnixDatagram::bind(at("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let Ports { client, peer, http } = Ports::free();
    let settings = format!(
        "name = \"n1\"\nlisten-client = \"127.0.0.1:{client}\"\n\
         listen-peer = \"127.0.0.1:{peer}\"\nlisten-http = \"127.0.0.1:{http}\"\n"
    );
    std::fs::write(at("ringfence.toml"), settings).unwrap();

    let text = unit();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let words = line
        .unwrap()
        .strip_prefix("/usr/bin/ringfence serve ")
        .unwrap();
    let words = words
        .replace("/etc/ringfence", folder.path().to_str().unwrap())
        .replace("/var/lib/ringfence", at("data").to_str().unwrap());
    let mut node = command()
        .args(words.split(' '))
        .env("NOTIFY_SOCKET", at("notify"))
        .stderr(std::fs::File::create(at("log")).unwrap())
        .spawn()
        .unwrap();
    let mut message = [0; 64];
    let got = manager
        .recv(&mut message)
        .map(|length| message[..length].to_vec());
    node.kill().unwrap();
    node.wait().unwrap();
    let log = std::fs::read_to_string(at("log")).unwrap();
    assert_eq!(got.expect(&log), b"READY=1\n", "{log}");
    // It is the kind of service that systemd waits for.
    assert!(text.contains("\nType=notify\n"));
}
