//! A node as a child process on free ports, with a directory of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use ringfence_testkit::ports::Port;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// How long a node may take to do what is expected of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How often a condition is looked at.
pub(crate) const GLANCE: Duration = Duration::from_millis(20);

/// Addresses of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) client: u16,
    pub(crate) peer: u16,
    pub(crate) http: u16,
}

impl Ports {
    /// Three ports that are the test's until its process ends.
    pub(crate) fn free() -> Self {
        let [client, peer, http] = [0; 3].map(|_| {
            let port = Port::any();
            let number = port.number();
            std::mem::forget(port);
            number
        });
        Self { client, peer, http }
    }

    /// The flags that make a node use them.
    pub(crate) fn flags(self) -> Vec<String> {
        self.flags_on(["127.0.0.1"; 3])
    }

    /// The same, at these addresses of the client, the peer and the HTTP port.
    pub(crate) fn flags_on(self, hosts: [&str; 3]) -> Vec<String> {
        let Self { client, peer, http } = self;
        [("client", client), ("peer", peer), ("http", http)]
            .iter()
            .zip(hosts)
            .map(|((what, port), host)| format!("--listen-{what}={host}:{port}"))
            .collect()
    }
}

/// A running node; dropping it kills it.
pub(crate) struct Process {
    child: Child,
    pub(crate) ports: Ports,
    log: PathBuf,
}

impl Process {
    /// Starts a node in `dir` with more flags.
    pub(crate) fn start(dir: &Path, ports: Ports, flags: &[&str]) -> Self {
        Self::start_on(["127.0.0.1"; 3], dir, ports, flags)
    }

    /// The same with at most so many files open.
    pub(crate) fn start_limited(files: u64, dir: &Path, ports: Ports, flags: &[&str]) -> Self {
        Self::start_after(&format!("ulimit -n {files}"), dir, ports, flags)
    }

    /// The same after a command of the shell that changes what it inherits.
    pub(crate) fn start_after(first: &str, dir: &Path, ports: Ports, flags: &[&str]) -> Self {
        let plain = command();
        let mut limited = Command::new("sh");
        let script = format!("{first} && exec \"$0\" \"$@\"");
        limited.args(["-c", &script]).arg(plain.get_program());
        limited.args(plain.get_args());
        for (name, _) in plain.get_envs() {
            limited.env_remove(name);
        }
        Self::start_command(limited, ["127.0.0.1"; 3], dir, ports, flags)
    }

    /// The same with a variable of its environment.
    pub(crate) fn start_with(
        variable: (&str, &Path),
        dir: &Path,
        ports: Ports,
        flags: &[&str],
    ) -> Self {
        let mut command = command();
        command.env(variable.0, variable.1);
        Self::start_command(command, ["127.0.0.1"; 3], dir, ports, flags)
    }

    /// The same with these variables of its environment.
    pub(crate) fn start_in(
        variables: &[(&str, &str)],
        dir: &Path,
        ports: Ports,
        flags: &[&str],
    ) -> Self {
        let mut command = command();
        command.envs(variables.iter().copied());
        Self::start_command(command, ["127.0.0.1"; 3], dir, ports, flags)
    }

    /// The same, whose log has no reader: the other end of its pipe is closed.
    pub(crate) fn start_unread(dir: &Path, ports: Ports, flags: &[&str]) -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Self::start_logging(
            command(),
            writer.into(),
            ["127.0.0.1"; 3],
            dir,
            ports,
            flags,
        )
    }

    /// The same, listening at these addresses; see [`Ports::flags_on`].
    pub(crate) fn start_on(hosts: [&str; 3], dir: &Path, ports: Ports, flags: &[&str]) -> Self {
        Self::start_command(command(), hosts, dir, ports, flags)
    }

    fn start_command(
        command: Command,
        hosts: [&str; 3],
        dir: &Path,
        ports: Ports,
        flags: &[&str],
    ) -> Self {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log_file(dir))
            .unwrap();
        Self::start_logging(command, log.into(), hosts, dir, ports, flags)
    }

    fn start_logging(
        mut command: Command,
        stderr: Stdio,
        hosts: [&str; 3],
        dir: &Path,
        ports: Ports,
        flags: &[&str],
    ) -> Self {
        let log = log_file(dir);
        let child = command
            .args(ports.flags_on(hosts))
            .args([
                "--data-dir",
                dir.to_str().unwrap(),
                "--wal-segment-bytes=1048576",
            ])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Self { child, ports, log }
    }

    /// Waits until the node says that it is ready.
    pub(crate) async fn ready(mut self) -> Self {
        let ready = async {
            while self.http("/readyz").is_none_or(|(status, _)| status != 200) {
                if let Some(status) = self.child.try_wait().unwrap() {
                    panic!("the node ended with {status}:\n{}", self.logged());
                }
                sleep(GLANCE).await;
            }
        };
        if timeout(PATIENCE, ready).await.is_err() {
            panic!(
                "the node is not ready; {:?}:\n{}",
                self.http("/readyz"),
                self.logged()
            );
        }
        self
    }

    /// The client address as a URL.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.client)
    }

    /// A GET over the HTTP port: status and body; `None` if no server answers.
    pub(crate) fn http(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports.http)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    }

    /// Sends a signal, `TERM` for example.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// How the process ended, if it does so in time.
    pub(crate) async fn ended_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                sleep(GLANCE).await;
            }
        };
        timeout(limit, ended).await.ok()
    }

    /// The memory that it occupies, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        kib << 10
    }

    /// What it wrote to its log.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended on its own.
        let _killed = self.child.kill().is_ok();
        let _waited = self.child.wait().is_ok();
    }
}

/// Where a node with this directory logs.
fn log_file(dir: &Path) -> PathBuf {
    dir.with_extension("log")
}

/// `ringfence serve` without the variables of the process that runs the tests.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    for (name, _) in std::env::vars_os() {
        let name_of = name.to_string_lossy();
        if name_of.starts_with("RINGFENCE_") || name_of.starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command.arg("serve");
    command
}

/// A cluster of one that is ready, and the directory that it lives in.
pub(crate) async fn single() -> (Process, TempDir) {
    let dir = TempDir::new().unwrap();
    let flags = ["--token-floor=0", "--ttl-min=100ms"];
    let node = Process::start(&dir.path().join("n1"), Ports::free(), &flags)
        .ready()
        .await;
    (node, dir)
}
