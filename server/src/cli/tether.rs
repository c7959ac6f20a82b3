//! A hidden command that ties a program's life to that of the process which started it.
//!
//! `ringfence tethered --parent PID -- PROGRAM ARGS…` asks the kernel to kill this process when
//! its parent ends, then becomes PROGRAM; the request survives the exec. So nodes do not outlive
//! `dev`, and CMD does not outlive the `lock` that guards it, also after a SIGKILL.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::{Failure, exit};

/// Run a program that ends with its parent.
#[derive(Args, Debug)]
pub(crate) struct Tethered {
    /// The parent's process id
    #[arg(long)]
    parent: i32,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// This program once more, also if its file was replaced since it was started: the kernel knows what
/// is running.
pub(crate) fn own_binary() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(env!("CARGO_BIN_NAME"));
    command
}

/// The command that runs `program` tethered to this process.
///
/// The kernel watches the *thread* that starts it: start it from one that lives as long as it may.
pub(crate) fn command<A: AsRef<OsStr>>(
    program: &OsStr,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = own_binary();
    command
        .arg("tethered")
        .arg("--parent")
        .arg(std::process::id().to_string())
        .arg("--");
    command.arg(program).args(arguments);
    command
}

impl Tethered {
    /// Becomes the program; returns only if that fails.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if let Err(cause) = set_parent_process_death_signal(Some(Signal::KILL)) {
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
