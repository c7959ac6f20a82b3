//! An etcd of one member.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{Kit, cache, go, without};

/// What it says when calls are answered.
pub const READY: &str = "ready to serve client requests";

/// The version is that of `etcd/go.mod`.
const KIT: Kit = Kit {
    what: "etcd",
    version: "v3.6.8",
    prefix: "etcd-",
    module: concat!(env!("CARGO_MANIFEST_DIR"), "/etcd"),
    files: &["go.mod", "go.sum"],
    packages: &[("go.etcd.io/etcd/server/v3", "etcd")],
    stamp: "go.etcd.io/etcd/api/v3/version.GitSHA",
    links: &[],
    minutes: 2,
};

/// The program `etcd`; `None` if it is not built and need not be, which is printed. Under CI it is
/// built.
#[must_use]
pub fn program() -> Option<PathBuf> {
    match KIT.found("cargo xtask etcd") {
        Ok(folder) => Some(folder.join("etcd")),
        Err(why) => without("etcd", &why),
    }
}

/// Builds the program unless it is there, and says where it is.
///
/// # Errors
/// What is missing, or which step of the build failed.
pub fn build() -> Result<PathBuf, String> {
    let folder = KIT.built(&go()?, &cache()?)?;
    Ok(folder.join("etcd"))
}

/// Adds to a command of the program: a cluster of one member, with its data in `directory`, that answers
/// at `client`. `peer` is its own port for other members, of which there are none.
pub fn arguments(command: &mut Command, client: SocketAddr, peer: SocketAddr, directory: &Path) {
    command.arg("--name=one").arg("--data-dir").arg(directory);
    command.arg(format!("--listen-client-urls=http://{client}"));
    command.arg(format!("--advertise-client-urls=http://{client}"));
    command.arg(format!("--listen-peer-urls=http://{peer}"));
    command.arg(format!("--initial-advertise-peer-urls=http://{peer}"));
    command.arg(format!("--initial-cluster=one=http://{peer}"));
    // No other member can be late, so that it leads soon after its start.
    command.args(["--heartbeat-interval=10", "--election-timeout=100"]);
}
