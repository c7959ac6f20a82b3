//! Programs that tests need and no package has: built with Go, once for each state of their module.
//!
//! They go into `$RINGFENCE_KUBERNETES_CACHE`, or `ringfence/kubernetes` in the user's cache. A build
//! takes minutes, so it begins only when it is asked for, or by a test under CI.

mod kit;
mod notice;

use std::env;
use std::path::PathBuf;

pub use kit::Kit;
pub use notice::tell;

/// Folders in which Go is looked for beside those of the search path.
const GO_HOMES: [&str; 2] = ["/usr/local/go/bin", "/usr/lib/go/bin"];

impl Kit {
    /// The folder with the programs as a test finds it: what an earlier build left; under CI it is
    /// built.
    ///
    /// # Errors
    /// What is missing, with the `command` that builds it, or which step of the build failed.
    pub fn found(&self, command: &str) -> Result<PathBuf, String> {
        let go = go()?;
        match under_ci() {
            true => self.built(&go, &cache()?),
            false => self
                .left(&go, &cache()?)?
                .ok_or_else(|| format!("it is not built yet; build it once with: {command}")),
        }
    }
}

/// Whether the environment says that this is CI, where nothing may be left out.
#[must_use]
pub fn under_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true")
}

/// Says why nothing is tested, past the harness, which keeps what a passing test prints to itself.
/// `None`, for the caller to return.
///
/// # Panics
/// Under CI.
pub fn without<T>(what: &str, why: &str) -> Option<T> {
    assert!(!under_ci(), "no {what}: {why}");
    tell(&format!("NOT TESTED: no {what}: {why}"));
    None
}

/// The program `go`.
///
/// # Errors
/// That there is none, and what to do.
pub fn go() -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(GO_HOMES.map(PathBuf::from));
    let mut programs = places.map(|place| place.join("go"));
    programs
        .find(|program| program.is_file())
        .ok_or_else(|| "no Go: install Go 1.26 or later (https://go.dev/dl)".to_owned())
}

/// Where what is built once is kept: a folder of the user's, which need not exist yet.
///
/// # Errors
/// Which variables would name one.
pub fn cache() -> Result<PathBuf, String> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(chosen) = set("RINGFENCE_KUBERNETES_CACHE") {
        return Ok(chosen.into());
    }
    let user = set("XDG_CACHE_HOME").map(PathBuf::from);
    let user = user.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")));
    let user = user.ok_or("neither RINGFENCE_KUBERNETES_CACHE, XDG_CACHE_HOME nor HOME is set")?;
    Ok(user.join("ringfence").join("kubernetes"))
}
