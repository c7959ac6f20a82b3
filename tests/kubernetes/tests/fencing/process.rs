//! A `ringfence` command that runs beside a test, and ends with it.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use ringfence_testkit::ports::Port;
use tempfile::TempDir;

use crate::stand::until;

/// A command with figures.
pub(crate) struct Running {
    child: Child,
    http: Port,
    folder: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            eprintln!("--- its log\n{}", self.log());
        }
    }
}

impl Running {
    /// Starts `ringfence kube …` and waits until it shows figures.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let (folder, http) = (TempDir::new().unwrap(), Port::any());
        let log = File::create(folder.path().join("log")).unwrap();
        // The kernel ends it when this process ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(ringfence_tests::server())
            .arg("kube")
            .args(arguments)
            .args(["--listen-http", &http.address().to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let running = Self {
            child,
            http,
            folder,
        };
        let address = running.http.address().to_string();
        until("figures are shown", || async {
            ringfence_kubernetes::figures(&address).await.is_some()
        })
        .await;
        running
    }

    /// What it has said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// All its figures.
    pub(crate) async fn figures(&self) -> String {
        let shown = ringfence_kubernetes::figures(&self.http.address().to_string()).await;
        shown.expect("it shows its figures")
    }

    /// A figure; `None` if it is not shown.
    pub(crate) async fn figure(&self, name: &str) -> Option<f64> {
        ringfence_kubernetes::figure(&self.http.address().to_string(), name).await
    }

    /// Waits until a figure is so.
    pub(crate) async fn until_figure(&self, name: &str, is: impl Fn(f64) -> bool) {
        until(name, || async { self.figure(name).await.is_some_and(&is) }).await;
    }
}

/// Runs `ringfence kube …` to its end.
pub(crate) async fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(ringfence_tests::server());
    command.arg("kube").args(arguments).stdin(Stdio::null());
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.unwrap().unwrap()
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
