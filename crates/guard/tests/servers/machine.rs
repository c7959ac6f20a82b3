//! What this machine has for a server: its program, a directory, a port and a user.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use tempfile::TempDir;

/// Debian keeps the server's programs out of the search path.
const POSTGRES_HOME: &str = "/usr/lib/postgresql";

/// What a server does with what it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// As in service: on a disk, and synced.
    Real,
    /// In memory where there is such a directory, and not synced: no test is about the loss of
    /// power.
    Memory,
}

impl Disk {
    pub(crate) fn directory(self) -> TempDir {
        let memory = Path::new("/dev/shm");
        if self == Self::Memory && memory.is_dir() {
            return tempfile::tempdir_in(memory).unwrap();
        }
        tempfile::tempdir().unwrap()
    }
}

/// Looks for a program. Under CI it must be there; elsewhere its tests are left out, loudly.
pub(crate) fn find(program: &str, package: &str) -> Option<PathBuf> {
    let mut places: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .chain(["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from))
        .collect();
    let versions = fs::read_dir(POSTGRES_HOME).into_iter().flatten().flatten();
    places.extend(versions.map(|version| version.path().join("bin")));
    let found = places.iter().map(|place| place.join(program));
    if let Some(found) = found.into_iter().find(|path| path.is_file()) {
        return Some(found);
    }
    let ci = env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci, "{program} is not installed: apt-get install {package}");
    // Past the harness, which would keep what a passing test prints to itself.
    let line = format!("\nNOT TESTED: {program} is not installed: apt-get install {package}\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
    None
}

/// A port that was free a moment ago.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Gives a directory to the server's user, if this is root.
pub(super) fn own(directory: &Path, name: &str, package: &str) {
    if fs::metadata(directory).unwrap().uid() != 0 {
        return;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let user = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields[0] == name)
        .unwrap_or_else(|| panic!("the package {package} makes the user {name}"));
    let id = |at: usize| user[at].parse().ok();
    chown(directory, id(2), id(3)).unwrap();
}
