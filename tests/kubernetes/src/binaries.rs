//! Where the components of Kubernetes are, and how they come to be.
//!
//! `KUBEBUILDER_ASSETS` is honoured first: a folder with `etcd`, `kube-apiserver` and `kubectl`.
//! Else they are built with Go, once for each state of `components`, into
//! `$RINGFENCE_KUBERNETES_CACHE`, or `ringfence/kubernetes` in the user's cache. The build takes
//! minutes, so it begins only when it is asked for: by `cargo xtask kubernetes`, or by a test under
//! CI. Tests without the components say so in one loud line; under CI that is a failure. A folder that
//! is named and lacks one of the three is a failure everywhere.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, process};

/// The version of Kubernetes in `components/go.mod`, as the components tell it.
pub const VERSION: &str = "v1.36.3";

/// The components that are linked into one binary, whose name chooses among them.
const COMPONENTS: [&str; 8] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "kube-proxy",
    "coredns",
];

/// What a folder that is named has to hold. A test that went without one of them would be no test.
const NEEDED: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// Folders in which Go is looked for beside those of the search path.
const GO_HOMES: [&str; 2] = ["/usr/local/go/bin", "/usr/lib/go/bin"];

/// A folder with the components, and with `pause`, which the sandbox of a Pod runs; `None` if there
/// are none, which is printed once.
pub(crate) fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(find).as_deref()
}

/// The command line that people use; the other components lie beside it. `None` if there is no
/// Kubernetes here, which is printed.
#[must_use]
pub fn kubectl() -> Option<PathBuf> {
    Some(folder()?.join("kubectl"))
}

fn find() -> Option<PathBuf> {
    let found = match under_ci() {
        true => build(),
        false => built_before(),
    };
    found.map_or_else(|why| without(&why), Some)
}

/// Builds the components unless they are there, and says where they are.
///
/// # Errors
/// What is missing, or which step of the build failed.
pub fn build() -> Result<PathBuf, String> {
    if let Some(assets) = assets() {
        return Ok(assets);
    }
    let go = go()?;
    let place = Place::of(&go)?;
    place.built(&go)
}

/// The components, if an earlier build left them.
fn built_before() -> Result<PathBuf, String> {
    if let Some(assets) = assets() {
        return Ok(assets);
    }
    let place = Place::of(&go()?)?;
    match place.is_built() {
        true => Ok(place.folder),
        false => Err("it is not built yet; build it once with: cargo xtask kubernetes".to_owned()),
    }
}

fn under_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true")
}

/// The folder that `KUBEBUILDER_ASSETS` names.
fn assets() -> Option<PathBuf> {
    env::var_os("KUBEBUILDER_ASSETS").map(|assets| named(assets.into()))
}

/// A folder that the caller has named.
fn named(assets: PathBuf) -> PathBuf {
    for needed in NEEDED {
        assert!(
            assets.join(needed).is_file(),
            "KUBEBUILDER_ASSETS names a folder without {needed}: {}",
            assets.display()
        );
    }
    assets
}

/// Says why nothing is tested, past the harness, which keeps what a passing test prints to itself.
fn without(why: &str) -> Option<PathBuf> {
    assert!(!under_ci(), "no Kubernetes: {why}");
    tell(&format!("NOT TESTED: no Kubernetes: {why}"));
    None
}

fn tell(line: &str) {
    // Nothing can be done about a closed stderr, and nothing depends on it.
    io::stderr()
        .write_all(format!("\n{line}\n").as_bytes())
        .ok();
}

fn go() -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(GO_HOMES.map(PathBuf::from));
    let mut programs = places.map(|place| place.join("go"));
    programs.find(|program| program.is_file()).ok_or_else(|| {
        "neither KUBEBUILDER_ASSETS nor Go: install Go 1.26 or later (https://go.dev/dl), or name a \
         folder with etcd, kube-apiserver and kubectl"
            .to_owned()
    })
}

/// Where the components of the present state of the module are, or would be.
struct Place {
    module: PathBuf,
    cache: PathBuf,
    folder: PathBuf,
}

impl Place {
    fn of(go: &Path) -> Result<Self, String> {
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("components");
        let cache = cache()?;
        let folder = cache.join(format!("{VERSION}-{:016x}", state(go, &module)?));
        Ok(Self {
            module,
            cache,
            folder,
        })
    }

    fn is_built(&self) -> bool {
        self.folder.join("kube").is_file()
    }

    fn built(self, go: &Path) -> Result<PathBuf, String> {
        let Self { module, cache, .. } = &self;
        let made = |error: io::Error| format!("cannot write to {}: {error}", cache.display());
        fs::create_dir_all(cache).map_err(made)?;

        // Several programs may come at once; one of them builds, and the others wait for it.
        let lock = File::create(cache.join("lock")).map_err(made)?;
        lock.lock().map_err(made)?;
        if self.is_built() {
            return Ok(self.folder);
        }
        tell(&format!(
            "building the components of Kubernetes {VERSION} once, for about a quarter of an hour \
             on two cores, into {}",
            self.folder.display()
        ));
        let half = cache.join(format!("half-{}", process::id()));
        fs::remove_dir_all(&half).ok();
        fs::create_dir_all(&half).map_err(made)?;
        go_build(go, module, ".", &half.join("kube"))?;
        go_build(go, module, "./pause", &half.join("pause"))?;
        for component in COMPONENTS {
            symlink("kube", half.join(component)).map_err(made)?;
        }
        fs::rename(&half, &self.folder).map_err(made)?;
        Ok(self.folder)
    }
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

/// Changes with everything that the binary is made of.
fn state(go: &Path, module: &Path) -> Result<u64, String> {
    let mut state = DefaultHasher::new();
    for file in ["go.mod", "go.sum", "main.go", "pause/main.go"] {
        let path = module.join(file);
        let content = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        content.hash(&mut state);
    }
    let version = Command::new(go).arg("version").output();
    let version = version.map_err(|error| format!("{} version: {error}", go.display()))?;
    version.stdout.hash(&mut state);
    (FLAGS, COMPONENTS).hash(&mut state);
    Ok(state.finish())
}

/// What makes the same binary of the same sources everywhere, and a small one.
const FLAGS: [&str; 3] = ["-trimpath", "-mod=readonly", "-buildvcs=false"];

fn go_build(go: &Path, module: &Path, package: &str, binary: &Path) -> Result<(), String> {
    let stamp = format!("-s -w -X k8s.io/component-base/version.gitVersion={VERSION}");
    let status = Command::new(go)
        .arg("build")
        .args(FLAGS)
        .args(["-ldflags", &stamp, "-o"])
        .arg(binary)
        .arg(package)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env_remove("GOFLAGS")
        .stdin(Stdio::null())
        // Cargo reads our stdout.
        .stdout(Stdio::null())
        .status();
    let status = status.map_err(|error| format!("{} build: {error}", go.display()))?;
    let failed = || {
        format!(
            "`go build {package}` in {} failed ({status}), see above",
            module.display()
        )
    };
    status.success().then_some(()).ok_or_else(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(components: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        for component in components {
            fs::write(folder.path().join(component), "").expect("a folder of our own");
        }
        folder
    }

    #[test]
    #[should_panic(expected = "a folder without kubectl")]
    fn a_folder_without_kubectl_is_refused() {
        let folder = folder_with(&["etcd", "kube-apiserver"]);
        named(folder.path().to_owned());
    }

    #[test]
    fn a_folder_with_all_three_is_taken() {
        let folder = folder_with(&NEEDED);
        assert_eq!(named(folder.path().to_owned()), folder.path());
    }
}
