//! Where the components of Kubernetes are, and how they come to be.
//!
//! `KUBEBUILDER_ASSETS` is honoured first: a folder with `etcd`, `kube-apiserver` and `kubectl`.
//! Else they are built with Go, once for each state of `components`, into
//! `$RINGFENCE_KUBERNETES_CACHE`, or `ringfence/kubernetes` in the user's cache; so is Helm, of the
//! module `helm`. The build takes minutes, so it begins only when it is asked for: by `cargo xtask
//! kubernetes`, or by a test under CI. Tests without the components say so in one loud line; under CI
//! that is a failure. A folder that is named and lacks one of the three is a failure everywhere.
//!
//! `RINGFENCE_KUBERNETES_VERSION=1.30` puts an older API server in the place of that of the components,
//! of a module in `older`; etcd and `kubectl` stay the same. It is built as the others are, by `cargo xtask
//! older-kubernetes`.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ringfence_testkit::programs::{Kit, cache, go, without};

/// The version of Kubernetes in `components/go.mod`, as the components tell it.
pub const VERSION: &str = "v1.36.3";

/// The components, which are linked into one binary, whose name chooses among them.
const KUBERNETES: Kit = Kit {
    what: "the components of Kubernetes",
    version: VERSION,
    prefix: "",
    module: concat!(env!("CARGO_MANIFEST_DIR"), "/components"),
    files: &["go.mod", "go.sum", "main.go", "pause/main.go"],
    packages: &[(".", "kube"), ("./pause", "pause")],
    stamp: "k8s.io/component-base/version.gitVersion",
    links: &[
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
        "kubelet",
        "kube-proxy",
        "coredns",
    ],
    minutes: 15,
};

/// API servers of older versions, by what chooses them. The versions are those of `older/*/go.mod`.
const OLDER: [(&str, Kit); 6] = [
    older(
        "1.30",
        "v1.30.14",
        concat!(env!("CARGO_MANIFEST_DIR"), "/older/1.30"),
    ),
    older(
        "1.31",
        "v1.31.14",
        concat!(env!("CARGO_MANIFEST_DIR"), "/older/1.31"),
    ),
    older(
        "1.32",
        "v1.32.13",
        concat!(env!("CARGO_MANIFEST_DIR"), "/older/1.32"),
    ),
    older(
        "1.33",
        "v1.33.13",
        concat!(env!("CARGO_MANIFEST_DIR"), "/older/1.33"),
    ),
    older(
        "1.34",
        "v1.34.4",
        concat!(env!("CARGO_MANIFEST_DIR"), "/older/1.34"),
    ),
    older(
        "1.35",
        "v1.35.4",
        concat!(env!("CARGO_MANIFEST_DIR"), "/older/1.35"),
    ),
];

const fn older(
    name: &'static str,
    version: &'static str,
    module: &'static str,
) -> (&'static str, Kit) {
    let kit = Kit {
        what: "the API server of Kubernetes",
        version,
        prefix: "older-",
        module,
        files: &["go.mod", "go.sum"],
        packages: &[("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver")],
        stamp: "k8s.io/component-base/version.gitVersion",
        links: &[],
        minutes: 8,
    };
    (name, kit)
}

/// Chooses an API server.
const CHOICE: &str = "RINGFENCE_KUBERNETES_VERSION";

/// Helm; the version is that of `helm/go.mod`.
const HELM: Kit = Kit {
    what: "Helm",
    version: "v4.2.4",
    prefix: "helm-",
    module: concat!(env!("CARGO_MANIFEST_DIR"), "/helm"),
    files: &["go.mod", "go.sum"],
    packages: &[("helm.sh/helm/v4/cmd/helm", "helm")],
    stamp: "helm.sh/helm/v4/internal/version.version",
    links: &[],
    minutes: 3,
};

/// cert-manager; the version is that of `cert-manager/go.mod`.
const CERT_MANAGER: Kit = Kit {
    what: "cert-manager",
    version: "v1.21.2",
    prefix: "cert-manager-",
    module: concat!(env!("CARGO_MANIFEST_DIR"), "/cert-manager"),
    files: &["go.mod", "go.sum", "main.go"],
    packages: &[(".", "cert-manager")],
    stamp: "github.com/cert-manager/cert-manager/pkg/util.AppVersion",
    links: &["controller", "webhook", "cainjector"],
    minutes: 5,
};

/// What a folder that is named has to hold. A test that went without one of them would be no test.
const NEEDED: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// What builds both.
const COMMAND: &str = "cargo xtask kubernetes";

/// A folder with the components, and with `pause`, which the sandbox of a Pod runs; `None` if there
/// are none, which is printed once.
pub(crate) fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(find).as_deref()
}

/// The API server that is tested with: that of the folder, unless an older one is chosen. `None` if that
/// one is not built, which is printed.
///
/// # Panics
/// If a version is chosen that is not known.
pub(crate) fn api_server(folder: &Path) -> Option<PathBuf> {
    let Some((_, kit)) = chosen() else {
        return Some(folder.join("kube-apiserver"));
    };
    let found = kit.found("cargo xtask older-kubernetes");
    let found = found.map(|folder| folder.join("kube-apiserver"));
    found.map_or_else(|why| without("older Kubernetes", &why), Some)
}

/// The version of the API server that is tested with, as it reports it.
#[must_use]
pub fn version() -> &'static str {
    chosen().map_or(VERSION, |(_, kit)| kit.version)
}

/// Whether the API server that is tested with is the newest one, with all that Ringfence uses.
#[must_use]
pub fn is_newest() -> bool {
    chosen().is_none()
}

fn chosen() -> Option<&'static (&'static str, Kit)> {
    let choice = env::var(CHOICE).ok().filter(|choice| !choice.is_empty())?;
    Some(older_of(&choice).unwrap_or_else(|| {
        panic!(
            "invalid {CHOICE}: got {choice}, expected one of {}, or none for {VERSION}",
            known()
        )
    }))
}

fn older_of(name: &str) -> Option<&'static (&'static str, Kit)> {
    const ALL: &[(&str, Kit)] = &OLDER;
    ALL.iter().find(|(known, _)| *known == name)
}

fn known() -> String {
    OLDER.map(|(name, _)| name).join(", ")
}

/// Builds the API servers of these older versions, of all if none is named, unless they are there; gives
/// their names.
///
/// # Errors
/// Which name is not known, what is missing, or which step of the build failed.
pub fn build_older(names: &[String]) -> Result<Vec<&'static str>, String> {
    let mut chosen = Vec::new();
    for name in names {
        let unknown = || format!("got the version {name}, expected one of {}", known());
        chosen.push(older_of(name).ok_or_else(unknown)?);
    }
    if chosen.is_empty() {
        chosen = OLDER
            .iter()
            .filter_map(|(name, _)| older_of(name))
            .collect();
    }
    let (go, cache) = (go()?, cache()?);
    let built = chosen.into_iter().map(|(name, kit)| {
        kit.built(&go, &cache)?;
        Ok(*name)
    });
    built.collect()
}

/// The command line that people use; the other components lie beside it. `None` if there is no
/// Kubernetes here, which is printed.
#[must_use]
pub fn kubectl() -> Option<PathBuf> {
    Some(folder()?.join("kubectl"))
}

fn find() -> Option<PathBuf> {
    let found = match assets() {
        Some(assets) => Ok(assets),
        None => KUBERNETES.found(COMMAND),
    };
    found.map_or_else(|why| without("Kubernetes", &or_assets(why)), Some)
}

/// The program `helm`; `None` if there is none, which is printed once. A folder that
/// `KUBEBUILDER_ASSETS` names need not contain it.
#[must_use]
pub fn helm() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = || HELM.found(COMMAND).map(|folder| folder.join("helm"));
    let program = PROGRAM.get_or_init(|| found().map_or_else(|why| without("Helm", &why), Some));
    program.clone()
}

/// Builds the components unless they are there, and says where they are.
///
/// # Errors
/// What is missing, or which step of the build failed.
pub fn build() -> Result<PathBuf, String> {
    match assets() {
        Some(assets) => Ok(assets),
        None => KUBERNETES.built(&go().map_err(or_assets)?, &cache()?),
    }
}

/// Builds Helm unless it is there, and says where it is.
///
/// # Errors
/// What is missing, or which step of the build failed.
pub fn build_helm() -> Result<PathBuf, String> {
    let folder = HELM.built(&go()?, &cache()?)?;
    Ok(folder.join("helm"))
}

/// cert-manager as it is deployed.
#[derive(Clone, Debug)]
pub struct CertManager {
    /// A folder with `controller`, `webhook` and `cainjector`.
    pub programs: PathBuf,
    /// Its own chart.
    pub chart: PathBuf,
}

/// Builds cert-manager unless it is there, and says where it is.
///
/// # Errors
/// What is missing, or which step of the build failed.
pub fn build_cert_manager() -> Result<CertManager, String> {
    let go = go()?;
    let programs = CERT_MANAGER.built(&go, &cache()?)?;
    let module = CERT_MANAGER.source(&go, "github.com/cert-manager/cert-manager")?;
    Ok(CertManager {
        programs,
        chart: module.join("deploy/charts/cert-manager"),
    })
}

/// What else there is to do about it.
fn or_assets(why: String) -> String {
    why + "; or name a folder with etcd, kube-apiserver and kubectl in KUBEBUILDER_ASSETS"
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

#[cfg(test)]
mod tests {
    use std::fs;

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
