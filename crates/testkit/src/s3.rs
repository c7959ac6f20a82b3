//! A server of S3: versitygw, which keeps buckets in folders and honours conditional writes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{Kit, cache, go, without};

/// The name of the only caller that it knows.
pub const KEY: &str = "ringfence";
/// What that caller proves itself with.
pub const SECRET: &str = "a-secret-of-tests";
/// What it says when it is about to listen.
pub const READY: &str = "service listening on";

/// The version is that of `s3/go.mod`.
const KIT: Kit = Kit {
    what: "versitygw, a server of S3,",
    version: "v1.8.0",
    prefix: "s3-",
    module: concat!(env!("CARGO_MANIFEST_DIR"), "/s3"),
    files: &["go.mod", "go.sum"],
    packages: &[("github.com/versity/versitygw/cmd/versitygw", "versitygw")],
    stamp: "main.Version",
    links: &[],
    minutes: 2,
};

/// The program `versitygw`; `None` if it is not built and need not be, which is printed. Under CI it is
/// built.
#[must_use]
pub fn program() -> Option<PathBuf> {
    match KIT.found("cargo xtask s3") {
        Ok(folder) => Some(folder.join("versitygw")),
        Err(why) => without("S3", &why),
    }
}

/// Builds the program unless it is there, and says where it is.
///
/// # Errors
/// What is missing, or which step of the build failed.
pub fn build() -> Result<PathBuf, String> {
    let folder = KIT.built(&go()?, &cache()?)?;
    Ok(folder.join("versitygw"))
}

/// Adds to a command of the program: it listens here, the folders in `root` are its buckets, and
/// `versions` is where it keeps old objects. Both have to be there, on a file system with attributes of
/// users.
pub fn arguments(command: &mut Command, address: SocketAddr, root: &Path, versions: &Path) {
    command.args(["--access", KEY, "--secret", SECRET]);
    command.args(["--port", &address.to_string()]);
    command.arg("--keep-alive");
    command.arg("posix");
    command.arg("--versioning-dir").arg(versions);
    command.arg(root);
}
