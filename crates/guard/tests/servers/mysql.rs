//! A MariaDB server.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use super::machine::{Disk, find, free_port, own};
use super::process::{self, Process};

/// The user that Debian's package makes, since the server refuses to run as root.
const USER: &str = "mysql";
const READY: &str = "ready for connections";
const PACKAGE: &str = "mariadb-server";
/// Ports are taken by others between the look and the start; so often another is tried.
const STARTS: u32 = 5;

/// A server with a data directory of its own. Dropping it ends it.
pub(crate) struct Mysql {
    directory: TempDir,
    disk: Disk,
    port: u16,
    /// `None` only while it is down.
    process: Option<Process>,
}

/// What a run of the database's own client has said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) succeeded: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Mysql {
    /// Starts one; `None` if it is not installed and that is allowed.
    pub(crate) fn start(disk: Disk) -> Option<Self> {
        let install = find("mariadb-install-db", PACKAGE)?;
        find("mariadbd", PACKAGE)?;
        let directory = disk.directory();
        own(directory.path(), USER, PACKAGE);
        let mut install = process::command(&install, Some(USER), "KILL");
        install.arg("--no-defaults");
        install.arg(process::setting("--datadir", directory.path().join("data")));
        install.args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        ]);
        // Servers that share one remove each other's files.
        install.arg(process::setting("--tmpdir", directory.path()));
        process::run(install.current_dir("/"));
        let mut server = Self {
            directory,
            disk,
            port: 0,
            process: None,
        };
        server.up();
        Some(server)
    }

    fn up(&mut self) {
        let mut told = String::new();
        for _ in 0..STARTS {
            self.port = free_port();
            // A directory that was killed says so, and is recovered first.
            match Process::start(self.command(), READY, Signal::KILL) {
                Ok(process) => {
                    self.process = Some(process);
                    return;
                }
                Err(why) => told = why,
            }
        }
        panic!("the server did not start: {told}");
    }

    fn command(&self) -> Command {
        let program = find("mariadbd", PACKAGE).expect("it was there at the start");
        let mut command = process::command(&program, Some(USER), "KILL");
        let path = |name: &str| self.directory.path().join(name);
        let synced = if self.disk == Disk::Real { "1" } else { "0" };
        command.arg("--no-defaults");
        for setting in [
            process::setting("--datadir", path("data")),
            process::setting("--tmpdir", self.directory.path()),
            process::setting("--socket", path("socket")),
            process::setting("--pid-file", path("pid")),
            process::setting("--port", self.port.to_string()),
            process::setting("--bind-address", "127.0.0.1"),
            process::setting("--max-connections", "200"),
            process::setting("--innodb-buffer-pool-size", "32M"),
            process::setting("--innodb-log-file-size", "16M"),
            process::setting("--innodb-flush-log-at-trx-commit", synced),
            process::setting("--skip-name-resolve", "1"),
        ] {
            command.arg(setting);
        }
        command.current_dir("/");
        command
    }

    /// Kills the server, and starts it again on what is there.
    pub(crate) fn crash(&mut self) {
        self.process.take().expect("it is up").end(Signal::KILL);
        self.up();
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The database as text, by the tool that operators use.
    pub(crate) fn dump(&self, database: &str) -> Vec<u8> {
        let mut dump = self.tool("mariadb-dump");
        process::run(dump.args(["--routines", "--single-transaction", database]))
    }

    /// Replaces the database with a dump.
    pub(crate) fn load(&self, database: &str, dump: &[u8]) {
        let again = format!("DROP DATABASE {database}; CREATE DATABASE {database};");
        for (place, script) in [("mysql", again.as_bytes()), (database, dump)] {
            let said = self.client(place, script);
            assert!(said.succeeded, "{said:?}");
        }
    }

    /// Runs a script with the database's own client, as a shell does.
    pub(crate) fn client(&self, database: &str, script: &[u8]) -> Said {
        let mut client = self.tool("mariadb");
        client.args(["--batch", "--skip-column-names", database]);
        let spawned = client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.unwrap();
        // It stops reading at the first error.
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), script).ok();
        let output = child.wait_with_output().unwrap();
        Said {
            succeeded: output.status.success(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn tool(&self, name: &str) -> Command {
        let program: PathBuf = find(name, PACKAGE).expect("it comes with the server");
        let mut command = process::command(&program, None, "KILL");
        let port = self.port.to_string();
        command.args(["--no-defaults", "--host=127.0.0.1", "--user=root"]);
        command.args(["--protocol=tcp", "--port", &port]);
        command
    }
}
