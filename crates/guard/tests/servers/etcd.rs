//! An etcd of one member.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ringfence_guard::etcd::EtcdClient;
use ringfence_testkit::etcd::{READY, arguments};
use ringfence_testkit::ports::Port;
use rustix::process::Signal;
use tempfile::TempDir;
use tonic::transport::Endpoint;

use super::machine::Disk;
use super::process::{self, Process};
use super::proxy::{self, Hand};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with a directory of its own. Dropping it ends it.
pub(crate) struct Etcd {
    program: PathBuf,
    directory: TempDir,
    disk: Disk,
    settings: Vec<String>,
    /// The same for its whole life: clients connect again where they were.
    port: Port,
    peer: Port,
    /// `None` only while it is down.
    process: Option<Process>,
}

impl Etcd {
    /// Starts one with `settings` on top; `None` if it is not built and that is allowed.
    pub(crate) fn start(disk: Disk, settings: &[&str]) -> Option<Self> {
        let mut server = Self {
            program: ringfence_testkit::etcd::program()?,
            directory: disk.directory(),
            disk,
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            port: Port::any(),
            peer: Port::any(),
            process: None,
        };
        server.up();
        Some(server)
    }

    fn up(&mut self) {
        let mut command = process::command(&self.program, None, "KILL");
        let (client, peer) = (self.port.address(), self.peer.address());
        arguments(&mut command, client, peer, &self.data());
        if self.disk == Disk::Memory {
            command.arg("--unsafe-no-fsync");
        }
        self.start_with(command);
    }

    fn start_with(&mut self, mut command: Command) {
        command.args(&self.settings);
        let started = Process::start(command, READY, Signal::KILL);
        let why = |told| panic!("the server did not start: {told}");
        self.process = Some(started.unwrap_or_else(why));
    }

    fn down(&mut self) {
        self.process.take().expect("it is up").end(Signal::KILL);
    }

    /// Kills the server, and starts it again on what is there.
    pub(crate) fn crash(&mut self) {
        self.down();
        self.up();
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A copy of its directory, which is taken while it is down.
    pub(crate) fn copy(&mut self) -> TempDir {
        self.down();
        let copied = self.disk.directory();
        copy(&self.data(), copied.path());
        self.up();
        copied
    }

    /// Replaces everything with a copy.
    pub(crate) fn load(&mut self, copied: &TempDir) {
        self.down();
        fs::remove_dir_all(self.data()).unwrap();
        copy(copied.path(), &self.data());
        self.up();
    }

    pub(crate) fn client(&self) -> EtcdClient {
        client(self.port.number())
    }

    /// A client behind a proxy that can disturb its calls.
    pub(crate) async fn client_through(&self) -> (EtcdClient, Hand) {
        let (port, hand) = proxy::serve(self.port.number(), proxy::HTTP2).await;
        (client(port), hand)
    }
}

fn client(port: u16) -> EtcdClient {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    EtcdClient::new(endpoint.timeout(PATIENCE).connect_lazy())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
