//! One child process: started tethered, asked to stop, killed if it does not.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::cli::tether::{self, Gate};
use crate::cli::watchdog::Watchdog;

/// A running process.
#[derive(Debug)]
pub(crate) struct Child {
    process: tokio::process::Child,
    pid: u32,
    /// Kills it when this process ends, if the kernel does not.
    watchdog: Option<Watchdog>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended(Option<ExitStatus>);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        match (
            status.and_then(|status| status.code()),
            status.and_then(|status| status.signal()),
        ) {
            (Some(code), _) => write!(f, "ended with code {code}"),
            (None, Some(signal)) => write!(f, "was killed by signal {signal}"),
            (None, None) => f.write_str("ended"),
        }
    }
}

impl Child {
    /// Starts `program` with `arguments`; what it writes is appended to `log`.
    ///
    /// # Errors
    /// If the log cannot be opened or the process not be started.
    pub(crate) fn start(program: &OsStr, arguments: &[String], log: &Path) -> io::Result<Self> {
        let log = own_log(log)?;
        let (mut command, gate) = tether::command(program, arguments)?;
        command
            .stdout(log.try_clone()?)
            .stderr(log)
            .stdin(Stdio::null());
        Self::spawn(command, gate)
    }

    /// Starts this binary with `arguments`, connected to this process by pipes; what it writes to
    /// stderr is appended to `log`.
    ///
    /// # Errors
    /// As for [`Child::start`].
    pub(crate) fn start_piped(arguments: &[String], log: &Path) -> io::Result<Self> {
        let log = own_log(log)?;
        let program = std::env::current_exe()?;
        let (mut command, gate) = tether::command(program.as_os_str(), arguments)?;
        command
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .stderr(log);
        Self::spawn(command, gate)
    }

    fn spawn(mut command: std::process::Command, gate: Option<Gate>) -> io::Result<Self> {
        // Settings meant for a node or client of the user's own do not reach these.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RINGFENCE_") {
                command.env_remove(name);
            }
        }
        // A group of its own: Ctrl-C is for this process alone, which then stops its children.
        command.process_group(0);
        let process = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .spawn()?;
        let pid = process
            .id()
            .expect("a process that was not waited for has an id");
        let mut child = Self {
            process,
            pid,
            watchdog: None,
        };
        if let Some(gate) = gate {
            child.watchdog = child.group().map(Watchdog::until_the_end).transpose()?;
            gate.open();
        }
        Ok(child)
    }

    /// Its process group, whose first process it is.
    fn group(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Its ends of the pipes, once, if it was started with pipes.
    pub(crate) fn pipes(
        &mut self,
    ) -> Option<(tokio::process::ChildStdin, tokio::process::ChildStdout)> {
        Some((self.process.stdin.take()?, self.process.stdout.take()?))
    }

    /// Sends it a signal; one that has ended does not mind.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.group() {
            // Not waited for yet, so the id cannot be another process's by now.
            kill_process(pid, signal).ok();
        }
    }

    /// Waits until it ends.
    pub(crate) async fn ended(&mut self) -> Ended {
        let ended = Ended(self.process.wait().await.ok());
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.done();
        }
        ended
    }

    /// Kills it and waits until it is gone.
    pub(crate) async fn kill(&mut self) -> Ended {
        self.signal(Signal::KILL);
        self.ended().await
    }

    /// Asks it to stop, also if it is paused, and kills it after `limit`.
    pub(crate) async fn stop(mut self, limit: Duration) -> Ended {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        match tokio::time::timeout(limit, self.ended()).await {
            Ok(ended) => ended,
            Err(_) => self.kill().await,
        }
    }
}

/// The log of a process, which other users may not read.
fn own_log(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).open(path)
}
