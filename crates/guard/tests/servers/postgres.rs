//! A PostgreSQL server.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::machine::{Disk, find, free_port, own};
use super::process::{self, Process};

/// The user that Debian's package makes, since the server refuses to run as root.
const USER: &str = "postgres";
const READY: &str = "database system is ready to accept connections";
/// Ports are taken by others between the look and the start; so often another is tried.
const STARTS: u32 = 5;

/// A server with a database directory of its own. Dropping it ends it.
pub(crate) struct Postgres {
    programs: PathBuf,
    directory: TempDir,
    disk: Disk,
    port: u16,
    /// `None` only while it is down.
    process: Option<Process>,
}

impl Postgres {
    /// Starts one; `None` if it is not installed and that is allowed.
    pub(crate) fn start(disk: Disk) -> Option<Self> {
        // Where it is linked to, its companions may not be.
        let initdb = find("initdb", "postgresql")?.canonicalize().unwrap();
        let programs = initdb.parent()?.to_owned();
        let directory = disk.directory();
        own(directory.path(), USER, "postgresql");
        let mut initdb = process::command(&initdb, Some(USER), "KILL");
        initdb.arg("--pgdata").arg(directory.path().join("data"));
        initdb.args(["--username=postgres", "--auth=trust", "--no-sync"]);
        initdb.args(["--no-locale", "--encoding=UTF8"]);
        process::run(initdb.current_dir("/"));
        let mut server = Self {
            programs,
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
            match Process::start(self.command(), READY, Signal::QUIT) {
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
        let program = self.programs.join("postgres");
        // QUIT, since a killed server leaves its shared memory behind.
        let mut command = process::command(&program, Some(USER), "QUIT");
        command.arg("-D").arg(self.directory.path().join("data"));
        let sync = if self.disk == Disk::Real { "on" } else { "off" };
        for setting in [
            process::setting("port", self.port.to_string()),
            process::setting("listen_addresses", "127.0.0.1"),
            process::setting("unix_socket_directories", ""),
            process::setting("max_connections", "200"),
            process::setting("max_prepared_transactions", "4"),
            process::setting("shared_buffers", "32MB"),
            process::setting("fsync", sync),
            process::setting("logging_collector", "off"),
        ] {
            command.args(["-c", &setting]);
        }
        command.current_dir("/");
        command
    }

    /// Kills the server's main process, and starts it again on what is there.
    pub(crate) fn crash(&mut self) {
        self.process
            .take()
            .expect("it is up")
            // It kills its children and saves nothing.
            .end(Signal::QUIT);
        self.up();
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The database as text, by the tool that operators use.
    pub(crate) fn dump(&self, database: &str) -> Vec<u8> {
        process::run(self.tool("pg_dump").args(["--dbname", database]))
    }

    /// Replaces the database with a dump.
    pub(crate) fn load(&self, database: &str, dump: &[u8]) {
        let file = self.directory.path().join("dump.sql");
        fs::write(&file, dump).unwrap();
        process::run(self.tool("dropdb").args(["--force", database]));
        process::run(self.tool("createdb").arg(database));
        let mut psql = self.tool("psql");
        psql.args(["--set=ON_ERROR_STOP=1", "--quiet", "--dbname", database]);
        process::run(psql.arg("--file").arg(&file));
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = process::command(&self.programs.join(name), None, "KILL");
        let port = self.port.to_string();
        command.args(["--host=127.0.0.1", "--username=postgres", "--port", &port]);
        command
    }
}
