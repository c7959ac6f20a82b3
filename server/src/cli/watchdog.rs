//! A second process that ends CMD if `lock` itself cannot, or a child process of `dev`, `demo` or
//! `bench` where the kernel does not end it with its parent.
//!
//! `lock` keeps the lease and ends CMD in time, but it is a process like any other: a signal can
//! stop it while CMD runs on, and SIGKILL ends it with only CMD's first process tied to it. The
//! watchdog knows CMD's process group and the moment until which the lease is held. It kills the
//! group when that moment has passed without a later one, and when `lock` has ended without having
//! ended the watchdog before. What ends a whole service with SIGTERM does not end the watchdog: CMD
//! may go on for a while, and so does its lease.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use nix::sys::signal::{SigSet, Signal as Blockable};
use ringfence_client::{BootClock, Clock, Moment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

use super::tether::own_binary;
use super::{Failure, exit};

/// One message: milliseconds on the clock that counts suspend, little endian.
const MESSAGE: usize = size_of::<u64>();

/// The longest wait for a message at once: `poll` takes no more than 24 days on some systems.
const WAIT_MAX: Duration = Duration::from_secs(60 * 60);

/// `lock`'s end of it.
#[derive(Debug)]
pub(super) struct Watchdog {
    process: Child,
    deadlines: ChildStdin,
    newest: Moment,
}

impl Watchdog {
    /// Starts it for `group`, to be killed at `deadline` unless a later one is set.
    ///
    /// # Errors
    /// If no process can be started.
    pub(super) fn start(group: Pid, deadline: Moment) -> io::Result<Self> {
        let process = own_binary()
            .args(["lock-watchdog", "--group"])
            .arg(group.as_raw_pid().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What stops the group of `lock` must not stop it.
            .process_group(0)
            .spawn()?;
        Self::of(process, deadline)
    }

    /// Starts it for `group`, to be killed when this process ends and not before.
    ///
    /// # Errors
    /// As for [`Watchdog::start`].
    pub(super) fn until_the_end(group: Pid) -> io::Result<Self> {
        Self::start(group, Moment::from_boot(Duration::MAX))
    }

    fn of(mut process: Child, deadline: Moment) -> io::Result<Self> {
        let deadlines = process.stdin.take().expect("its stdin was asked for");
        // One that is stopped does not read, and must not hold up `lock` when the pipe is full. This
        // end of the pipe belongs to no other process.
        fcntl_setfl(&deadlines, fcntl_getfl(&deadlines)? | OFlags::NONBLOCK)?;
        let mut watchdog = Self {
            process,
            deadlines,
            newest: deadline,
        };
        watchdog.send(millis(deadline))?;
        Ok(watchdog)
    }

    /// Sets a later deadline.
    ///
    /// # Errors
    /// If the watchdog has ended, or has not read for so long that the pipe is full.
    pub(super) fn extend(&mut self, deadline: Moment) -> io::Result<()> {
        if self.process.try_wait()?.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if deadline <= self.newest {
            return Ok(());
        }
        self.newest = deadline;
        self.send(millis(deadline))
    }

    /// Ends it: CMD has ended. One that is stopped is ended as well.
    pub(super) fn done(mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }

    fn send(&mut self, message: u64) -> io::Result<()> {
        self.deadlines.write_all(&message.to_le_bytes())
    }
}

fn millis(moment: Moment) -> u64 {
    u64::try_from(moment.since_boot().as_millis()).unwrap_or(u64::MAX)
}

/// Kill a process group when the lease it runs under has ended.
#[derive(Args, Debug)]
pub(crate) struct LockWatchdog {
    /// The process group of CMD
    #[arg(long)]
    group: i32,
}

impl LockWatchdog {
    /// Waits for the end of CMD or of the lease.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Some(group) = Pid::from_raw(self.group).filter(|_| self.group > 1) else {
            let message = format!(
                "invalid --group: got {}, expected a process group",
                self.group
            );
            return Err(Failure::usage(message));
        };
        outlast_signals();
        // Without a buffer: what lies in one would not wake `poll`.
        let mut stdin = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map(File::from)
            .map_err(|cause| {
                Failure::new(
                    exit::NOT_EXECUTABLE,
                    "FAULT",
                    format!("cannot read stdin: {cause}"),
                )
            })?;
        // Before the first message no lease is known that could end.
        let Ok(Word::Deadline(mut deadline)) = next(&mut stdin, None) else {
            return Ok(ExitCode::SUCCESS);
        };
        loop {
            match next(&mut stdin, Some(deadline)) {
                Ok(Word::Deadline(later)) => deadline = later,
                // `lock` has ended without a word, or does not get on.
                Ok(Word::Passed | Word::Gone) | Err(_) => {
                    // A group that has ended does not mind.
                    kill_process_group(group, Signal::KILL).ok();
                    return Ok(ExitCode::from(exit::LOST));
                }
            }
        }
    }
}

/// What is sent to every process of a service or of a terminal does not concern the watchdog. Its only
/// thread blocks these signals.
fn outlast_signals() {
    let blocked = [
        Blockable::SIGTERM,
        Blockable::SIGINT,
        Blockable::SIGHUP,
        Blockable::SIGQUIT,
        Blockable::SIGTSTP,
        Blockable::SIGTTIN,
        Blockable::SIGTTOU,
        Blockable::SIGUSR1,
        Blockable::SIGUSR2,
    ];
    // An error cannot be: these are signals.
    blocked.into_iter().collect::<SigSet>().thread_block().ok();
}

enum Word {
    Deadline(Moment),
    /// The deadline has passed.
    Passed,
    /// The other end was closed.
    Gone,
}

/// Waits for the next message, until the deadline.
fn next(stdin: &mut File, deadline: Option<Moment>) -> io::Result<Word> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_since(BootClock.now()));
        let timeout = left.map(|left| Timespec::try_from(left.min(WAIT_MAX)).unwrap_or_default());
        let mut ready = [PollFd::new(stdin, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            // What was sent before is read first: `lock` may have gone on while this was stopped.
            Ok(0) if left == Some(Duration::ZERO) => return Ok(Word::Passed),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(cause) => return Err(cause.into()),
        }
    }
    let mut message = [0; MESSAGE];
    match stdin.read_exact(&mut message) {
        Ok(()) => {}
        Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => return Ok(Word::Gone),
        Err(cause) => return Err(cause),
    }
    let millis = u64::from_le_bytes(message);
    Ok(Word::Deadline(Moment::from_boot(Duration::from_millis(
        millis,
    ))))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// One that was stopped for a while, or had to wait for a processor, while `lock` went on.
    #[test]
    fn what_was_sent_in_time_is_read_though_the_deadline_before_it_has_passed() {
        let (reader, mut lock) = io::pipe().unwrap();
        let mut stdin = File::from(std::os::fd::OwnedFd::from(reader));
        let (passed, later) = (BootClock.now(), BootClock.now() + Duration::from_secs(60));
        lock.write_all(&millis(later).to_le_bytes()).unwrap();
        let told = next(&mut stdin, Some(passed)).unwrap();
        assert!(matches!(told, Word::Deadline(until) if until > passed));

        let nothing = next(&mut stdin, Some(passed)).unwrap();
        assert!(matches!(nothing, Word::Passed));
    }

    #[test]
    fn one_that_does_not_read_holds_up_nobody() {
        let stopped = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let later = |step| Moment::from_boot(Duration::from_secs(step));
            let mut watchdog = Watchdog::of(stopped, later(0)).unwrap();
            let refused = (1..100_000).find_map(|step| watchdog.extend(later(step)).err());
            watchdog.done();
            sender.send(refused.map(|error| error.kind())).unwrap();
        });
        let refused = receiver.recv_timeout(Duration::from_secs(60));
        assert_eq!(refused, Ok(Some(io::ErrorKind::WouldBlock)));
    }
}
