//! Helm, run as people run it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A file or folder below `deploy`.
pub(crate) fn deploy(path: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    folder.join(path)
}

/// The chart.
pub(crate) fn chart() -> String {
    let folder = deploy("helm/ringfence");
    folder.to_str().unwrap().to_owned()
}

/// A file of values, of the chart itself or of these tests.
pub(crate) fn values(name: &str) -> String {
    let path = match name {
        "dev" => deploy("helm/ringfence/values-dev.yaml"),
        name => Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/chart/values")
            .join(format!("{name}.yaml")),
    };
    format!("--values={}", path.display())
}

/// The program, with a home of its own.
pub(crate) struct Helm {
    program: PathBuf,
    home: TempDir,
}

impl Helm {
    /// `None` if there is no Helm here, which is printed.
    pub(crate) fn found() -> Option<Self> {
        let program = ringfence_kubernetes::helm()?;
        let home = tempfile::tempdir().unwrap();
        Some(Self { program, home })
    }

    /// What it prints; or what it says on stderr, if it fails.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.program)
            .args(words)
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG")
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// The objects of a release, without a Kubernetes; or why there are none.
    pub(crate) fn template(
        &self,
        release: &str,
        namespace: &str,
        words: &[&str],
    ) -> Result<String, String> {
        let chart = chart();
        let own = ["template", release, &chart, "--namespace", namespace];
        self.run(&[&own[..], words].concat())
    }
}
