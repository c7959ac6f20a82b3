//! A hidden command that ties a program's life to that of the process which started it.
//!
//! `ringfence tethered --parent PID -- PROGRAM ARGS…` asks the kernel to kill this process when
//! its parent ends, then becomes PROGRAM; the request survives the exec. So nodes do not outlive
//! `dev`, and CMD does not outlive the `lock` that guards it, also after a SIGKILL.
//!
//! Only Linux has such a request. Elsewhere the parent starts a [`Watchdog`](super::watchdog::Watchdog)
//! beside the child, and the child waits at a [`Gate`] until the watchdog is there.

mod gate;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{Pid, getppid};

use super::{Failure, exit};
pub(crate) use gate::Gate;

/// Whether the kernel ends a process with its parent.
const DEATH_SIGNAL: bool = cfg!(target_os = "linux");

/// Run a program that ends with its parent.
#[derive(Args, Debug)]
pub(crate) struct Tethered {
    /// The parent's process id
    #[arg(long)]
    parent: i32,
    /// Where to wait for the watchdog, on systems without a death signal
    #[arg(long)]
    gate: Option<RawFd>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// This program once more. On Linux also if its file was replaced since it was started: the kernel
/// knows what is running.
pub(crate) fn own_binary() -> Command {
    let program = if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().unwrap_or_else(|_| env!("CARGO_BIN_NAME").into())
    };
    let mut command = Command::new(program);
    command.arg0(env!("CARGO_BIN_NAME"));
    command
}

/// The command that runs `program` tethered to this process, and the gate before it if the kernel
/// does not watch: open it when a watchdog does.
///
/// The kernel watches the *thread* that starts it: start it from one that lives as long as it may.
///
/// # Errors
/// If there is to be a gate, and this process has no descriptors left.
pub(crate) fn command<A: AsRef<OsStr>>(
    program: &OsStr,
    arguments: impl IntoIterator<Item = A>,
) -> io::Result<(Command, Option<Gate>)> {
    let gate = (!DEATH_SIGNAL).then(Gate::shut).transpose()?;
    let mut command = own_binary();
    command
        .arg("tethered")
        .arg("--parent")
        .arg(std::process::id().to_string());
    if let Some(gate) = &gate {
        command.arg("--gate").arg(gate.descriptor().to_string());
    }
    command.arg("--").arg(program).args(arguments);
    Ok((command, gate))
}

#[cfg(target_os = "linux")]
fn end_with_parent() -> io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent() -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this system has no death signal, so --gate is needed",
    ))
}

impl Tethered {
    /// Becomes the program; returns only if that fails.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let tied = match self.gate {
            Some(gate) => gate::wait(gate),
            None => end_with_parent(),
        };
        if let Err(cause) = tied {
            let message = format!("cannot ask to end with the parent process: {cause}");
            return Err(Failure::new(exit::NOT_EXECUTABLE, "FAULT", message));
        }
        // The parent may have ended before the request was made.
        if getppid().map(Pid::as_raw_pid) != Some(self.parent) {
            return Err(Failure::new(
                exit::NOT_EXECUTABLE,
                "FAULT",
                "the parent process has ended",
            ));
        }
        let program = &self.program[0];
        let cause = Command::new(program).args(&self.program[1..]).exec();
        let code = match cause.kind() {
            io::ErrorKind::NotFound => exit::NOT_FOUND,
            _ => exit::NOT_EXECUTABLE,
        };
        let message = format!("cannot execute {}: {cause}", program.display());
        Err(Failure::new(code, "NOT_EXECUTABLE", message)
            .hint("give a program that is on PATH, or its full path"))
    }
}
