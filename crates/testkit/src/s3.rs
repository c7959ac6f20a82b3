//! A server of S3: versitygw, which keeps buckets in folders and honours conditional writes.

use std::path::PathBuf;

use crate::programs::{Kit, cache, go, without};

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
