//! One node: started, killed, paused, started again.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::{CLIENT_PORT, Disk, HTTP_PORT, Home, PEER_PORT};
use crate::sys;

/// Small, so that segments change and snapshots are made within a minute.
const SEGMENT_BYTES: u32 = 1 << 20;
const SNAPSHOT_LOG_BYTES: u32 = 1 << 20;
/// Longer than usual: all nodes and clients share the cores of one machine.
const HEARTBEAT_MS: u32 = 100;
const ELECTION_MS: &str = "600..900";

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) home: Home,
    pub(crate) disk: Disk,
    pub(crate) log: PathBuf,
    program: PathBuf,
    /// How it finds the others.
    found_by: String,
    process: Option<Child>,
    pub(crate) paused: bool,
    /// It is down, or is going to be, by a fault.
    pub(crate) doomed: bool,
}

/// How a node ended that the run did not kill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended(ExitStatus);

#[cfg(test)]
impl Ended {
    pub(crate) fn with_code(code: u8) -> Self {
        Self(ExitStatus::from_raw(i32::from(code) << 8))
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "ended with code {code}"),
            (None, Some(signal)) => write!(f, "was killed by signal {signal}"),
            (None, None) => f.write_str("ended"),
        }
    }
}

/// What a node is made of.
pub(crate) struct Making<'a> {
    pub(crate) name: String,
    pub(crate) home: Home,
    pub(crate) disk: Disk,
    pub(crate) logs: &'a Path,
    pub(crate) program: &'a Path,
    /// `--initial-cluster=…` or `--join=…`.
    pub(crate) found_by: String,
}

impl Node {
    pub(crate) fn new(making: Making<'_>) -> Self {
        let Making {
            name,
            home,
            disk,
            logs,
            program,
            found_by,
        } = making;
        Self {
            log: logs.join(format!("{name}.log")),
            name,
            home,
            disk,
            program: program.to_owned(),
            found_by,
            process: None,
            paused: false,
            doomed: false,
        }
    }

    /// Starts its process. To be called on the thread that lives as long as the run.
    ///
    /// One that runs is left alone: another fault may have started it again.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let address = self.home.address;
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .arg(format!("--name={}", self.name))
            .arg(format!("--data-dir={}", self.disk.data().display()))
            .arg(&self.found_by)
            .arg(format!("--listen-client={address}:{CLIENT_PORT}"))
            .arg(format!("--listen-peer={address}:{PEER_PORT}"))
            .arg(format!("--listen-http={address}:{HTTP_PORT}"))
            .arg(format!("--wal-segment-bytes={SEGMENT_BYTES}"))
            .arg(format!("--snapshot-log-bytes={SNAPSHOT_LOG_BYTES}"))
            .arg(format!("--heartbeat-ms={HEARTBEAT_MS}"))
            .arg(format!("--election-ms={ELECTION_MS}"))
            // No other process reaches the namespaces.
            .arg("--allow-anonymous")
            .arg("--worker-threads=1")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        without_settings(&mut command);
        sys::bear_limits(&mut command);
        sys::confine(&mut command, self.home.network);
        self.process = Some(command.spawn()?);
        self.paused = false;
        self.doomed = false;
        Ok(())
    }

    /// Joins a cluster from now on instead of forming one.
    pub(crate) fn joins(&mut self, peer: Ipv4Peer) {
        self.found_by = format!("--join={}:{PEER_PORT}", peer.0);
    }

    pub(crate) fn runs(&self) -> bool {
        self.process.is_some()
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.process.as_ref()?.id()).ok()?)
    }

    fn signal(&self, signal: Signal) -> bool {
        // Not waited for yet, so the number cannot be another process's by now.
        self.pid()
            .is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// Kills it, and says whether it was there and died of that.
    pub(crate) fn kill(&mut self) -> bool {
        self.doomed = true;
        self.signal(Signal::KILL);
        let Some(mut process) = self.process.take() else {
            return false;
        };
        let status = process.wait();
        status.is_ok_and(|status| status.signal() == Some(9))
    }

    pub(crate) fn pause(&mut self) -> bool {
        self.paused = self.signal(Signal::STOP);
        self.paused
    }

    pub(crate) fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.paused = false;
    }

    /// Lets it write into no file behind so many bytes; `None` lets it write anywhere.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) -> io::Result<()> {
        let pid = self.pid().ok_or(io::ErrorKind::NotFound)?;
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        Ok(prlimit(Some(pid), Resource::Fsize, limit).map(drop)?)
    }

    /// Whether the kernel shows it as stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| stopped(process.id()))
    }

    /// How it ended, if it has ended on its own.
    pub(crate) fn ended(&mut self) -> Option<Ended> {
        let ended = self.process.as_mut()?.try_wait().ok()??;
        self.process = None;
        Some(Ended(ended))
    }
}

/// The address of a member's peer port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ipv4Peer(pub(crate) std::net::Ipv4Addr);

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether the kernel shows a process as stopped.
pub(crate) fn stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state == Some('T')
}

/// Settings meant for a node or client of the user's own do not reach those of the run.
pub(crate) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RINGFENCE_") {
            command.env_remove(name);
        }
    }
}
