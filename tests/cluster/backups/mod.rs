//! Backups of real clusters, and clusters that are restored from them.

mod bucket;
mod formed_without;
mod parts;
mod recovered;
mod restored;
mod taken;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use ringfence_tests::{Act, Cluster, Journal, Options, Signal};
use tempfile::TempDir;

/// Long enough for a node of a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// A short greatest TTL makes for a short quiet time: this and a minute.
const TTL_MAX: Duration = Duration::from_secs(5);

fn short_lived() -> Options {
    Options {
        flags: vec!["--ttl-max".into(), "5s".into()],
        // A session that outlives a test would outlive the greatest TTL.
        probed: false,
        ..Options::default()
    }
}

/// `ringfence` with these arguments, on the whole cluster.
fn ringfence(cluster: &Cluster, arguments: &[&str]) -> Output {
    let mut command = Command::new(ringfence_tests::server());
    command
        .env_clear()
        .args([
            "--timeout",
            "20s",
            "--endpoints",
            &cluster.endpoints().join(","),
        ])
        .args(arguments);
    command.output().expect("the command runs")
}

/// The same by the admin socket of the first node, which may do everything.
fn administer(cluster: &Cluster, arguments: &[&str]) -> String {
    let socket = cluster.data_dir(0).join("admin.sock");
    let mut command = Command::new(ringfence_tests::server());
    command
        .env_clear()
        .args([
            "--timeout",
            "20s",
            "--endpoints",
            &format!("unix:{}", socket.display()),
        ])
        .args(arguments);
    said(&command.output().expect("the command runs"))
}

/// What a command that succeeded has printed.
fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What a command that failed has said.
fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "it succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A backup of the cluster, and its digest.
struct Taken {
    folder: TempDir,
    digest: String,
}

impl Taken {
    fn of(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup");
        let digest = said(&ringfence(
            cluster,
            &["backup", &file.display().to_string()],
        ));
        Self { folder, digest }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    fn flags(&self) -> Vec<String> {
        let file = self.file().display().to_string();
        let digest = self.digest.clone();
        ["--restore".into(), file, "--digest".into(), digest].into()
    }
}

fn kill_all(cluster: &mut Cluster) {
    for at in 0..cluster.len() {
        if cluster.pid(at).is_some() {
            cluster.signal(at, Signal::Kill);
        }
    }
}

/// Every disk is lost, and the cluster is restored on empty ones.
async fn restore(cluster: &mut Cluster, backup: &Taken) {
    kill_all(cluster);
    for at in 0..cluster.len() {
        fs::remove_dir_all(cluster.data_dir(at)).unwrap();
    }
    cluster.set_flags(backup.flags());
    for at in 0..cluster.len() {
        cluster.spawn(at);
    }
    until_formed(cluster, cluster.len()).await;
}

/// The cluster's id, as a node that answers has it.
fn cluster_id(cluster: &Cluster) -> String {
    status(cluster)["cluster"].as_str().unwrap().to_owned()
}

/// What the first node in a cluster that is formed knows.
fn status(cluster: &Cluster) -> serde_json::Value {
    let mut formed = formed(cluster);
    assert!(!formed.is_empty(), "no node is in a cluster");
    formed.remove(0)
}

/// What the nodes know that are in a cluster that is formed.
fn formed(cluster: &Cluster) -> Vec<serde_json::Value> {
    let output = ringfence(cluster, &["--json", "cluster", "status"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let nodes = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let is_formed =
        |node: &serde_json::Value| node["cluster"].as_str().is_some_and(|id| !id.is_empty());
    nodes.filter(is_formed).collect()
}

/// Waits until so many nodes are in a cluster that is formed.
async fn until_formed(cluster: &Cluster, nodes: usize) {
    let waiting = async {
        while formed(cluster).len() < nodes {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let waited = tokio::time::timeout(LONG, waiting).await;
    waited.unwrap_or_else(|_| panic!("the cluster is not formed: {}", cluster.log(0)));
}

/// Waits until a node has logged this, and returns its log.
async fn logged(cluster: &Cluster, words: &str) -> String {
    let waiting = async {
        loop {
            let mut logs = (0..cluster.len()).map(|at| cluster.log(at));
            if let Some(log) = logs.find(|log| log.contains(words)) {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = tokio::time::timeout(LONG, waiting).await;
    waited.unwrap_or_else(|_| panic!("{words:?} is not in {}", cluster.log(0)))
}

/// Grants and releases so many leases.
async fn grants(cluster: &Cluster, journal: &mut Journal, names: impl Iterator<Item = String>) {
    let caller = cluster.caller();
    let mut session = None;
    for (at, name) in names.enumerate() {
        // Nothing keeps it alive, so it is renewed by being opened again.
        if at % 20 == 0 {
            session = None;
        }
        let session = match &mut session {
            Some(session) => session,
            none => none.insert(caller.open("writer", TTL_MAX).await.unwrap()),
        };
        let invoked = Journal::now();
        let grant = caller.acquire(session, session.number(), &name, None).await;
        let (answered, token) = (Journal::now(), grant.unwrap().token);
        let released = caller
            .release(session, session.number(), &name, token)
            .await;
        released.unwrap();
        journal.add(Act {
            name,
            token,
            invoked,
            answered,
            released: Some(answered),
        });
    }
}

/// What a node says at `/readyz`.
fn ready(cluster: &Cluster, at: usize) -> String {
    get(cluster, at, "/readyz")
}

/// What a node answers there, with the head; empty if it does not.
fn get(cluster: &Cluster, at: usize, path: &str) -> String {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect(cluster.http(at)) else {
        return String::new();
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    if stream.write_all(request.as_bytes()).is_ok() {
        stream.read_to_string(&mut answer).ok();
    }
    answer
}
