//! A Redis server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use rustix::process::Signal;
use tempfile::TempDir;

use super::machine::{Disk, find, free_port};
use super::process::{self, Process};
use super::proxy::{self, Hand};

const READY: &str = "Ready to accept connections";
/// Ports are taken by others between the look and the start; so often another is tried.
const STARTS: u32 = 5;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where it keeps snapshots and, if it is to, the file it appends to.
const SNAPSHOT: &str = "dump.rdb";
const APPENDED: &str = "appendonlydir";

/// A server with a directory of its own. Dropping it ends it.
pub(crate) struct Redis {
    program: PathBuf,
    directory: TempDir,
    settings: Vec<String>,
    port: u16,
    /// `None` only while it is down.
    process: Option<Process>,
}

impl Redis {
    /// Starts one that syncs each write, with `settings` on top; `None` if it is not installed and
    /// that is allowed.
    pub(crate) fn start(disk: Disk, settings: &[&str]) -> Option<Self> {
        let mut server = Self {
            program: find("redis-server", "redis-server")?,
            directory: disk.directory(),
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            port: 0,
            process: None,
        };
        server.up(&["--appendonly", "yes"]);
        Some(server)
    }

    fn up(&mut self, extra: &[&str]) {
        let mut told = String::new();
        for _ in 0..STARTS {
            self.port = free_port();
            match Process::start(self.command(extra), READY, Signal::KILL) {
                Ok(process) => {
                    self.process = Some(process);
                    return;
                }
                Err(why) => told = why,
            }
        }
        panic!("the server did not start: {told}");
    }

    fn command(&self, extra: &[&str]) -> Command {
        let mut command = process::command(&self.program, None, "KILL");
        command.args(["--port", &self.port.to_string()]);
        command.args(["--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendfsync", "always"]);
        command.arg("--dir").arg(self.directory.path());
        command.args(extra).args(&self.settings);
        command
    }

    fn down(&mut self) {
        self.process.take().expect("it is up").end(Signal::KILL);
    }

    /// Kills the server, and starts it again on what is there.
    pub(crate) fn crash(&mut self) {
        self.down();
        self.up(&["--appendonly", "yes"]);
    }

    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.port)).unwrap();
        // The client's own half a second is short on a busy machine.
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connected = client.get_multiplexed_async_connection_with_config(&patient);
        connected.await.unwrap()
    }

    /// Connects through a proxy that can disturb the connection.
    pub(crate) async fn connect_through(&self) -> (MultiplexedConnection, Hand) {
        let (stream, hand) = proxy::connect(self.port, proxy::REDIS).await;
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let info = redis::RedisConnectionInfo::default();
        let made = MultiplexedConnection::new_with_config(&info, stream, patient);
        let (connection, driver) = made.await.unwrap();
        tokio::spawn(driver);
        (connection, hand)
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(self.directory.path()).join(name)
    }

    /// A snapshot, as operators copy it away.
    pub(crate) async fn snapshot(&self) -> Vec<u8> {
        let mut connection = self.connect().await;
        let saved: redis::RedisResult<()> = redis::cmd("SAVE").query_async(&mut connection).await;
        saved.unwrap();
        fs::read(self.file(SNAPSHOT)).unwrap()
    }

    /// Replaces everything with a snapshot, then appends again.
    pub(crate) async fn load(&mut self, snapshot: &[u8]) {
        self.down();
        // While there is such a file the snapshot is not looked at.
        fs::remove_dir_all(self.file(APPENDED)).unwrap();
        fs::write(self.file(SNAPSHOT), snapshot).unwrap();
        self.up(&["--appendonly", "no"]);
        let mut connection = self.connect().await;
        let mut set = redis::cmd("CONFIG");
        let set = set.arg("SET").arg("appendonly").arg("yes");
        set.query_async::<()>(&mut connection).await.unwrap();
    }
}
