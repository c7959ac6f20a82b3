//! Real servers for tests and benchmarks: each on a free port, in a directory of its own, gone with
//! the value that stands for it.

#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod postgres;
mod process;
pub(crate) mod proxy;
pub(crate) mod redis;

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
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
    fn directory(self) -> TempDir {
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
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}
