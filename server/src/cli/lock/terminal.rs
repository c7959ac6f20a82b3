//! The terminal: CMD gets it as a job of a shell does, and `lock` takes it back.
//!
//! CMD has a process group of its own, so that it can be ended as a whole. A terminal serves one
//! group at a time, and stops others that read from it. To the shell that started `lock` the two
//! are one job, stopped and continued together.

use std::io::IsTerminal;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as Blockable};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process_group, waitid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// A process that is asked to stop has stopped within this time, if it does at all.
const STOP_LAG: Duration = Duration::from_millis(100);

/// The terminal on stdin, and the job that `lock` and CMD are to the shell.
pub(super) struct Terminal {
    own: Pid,
    cmd: Pid,
    children: Stream,
    continued: Stream,
}

/// What the shell, or a person at the keyboard, wants of the job.
pub(super) enum Job {
    /// CMD was stopped from the terminal; `lock` should stop as well.
    Stopped,
    /// The job goes on, maybe in front.
    Continued,
}

impl Terminal {
    /// Gives the terminal to the group `cmd`, if `lock` has it; `None` if there is no terminal.
    pub(super) fn share(cmd: Pid) -> Option<Self> {
        if !std::io::stdin().is_terminal() {
            return None;
        }
        let terminal = Self {
            own: getpgrp(),
            cmd,
            children: signal(SignalKind::child()).ok()?,
            continued: signal(SignalKind::from_raw(Signal::CONT.as_raw())).ok()?,
        };
        terminal.resume();
        Some(terminal)
    }

    /// What happens next to the job.
    pub(super) async fn next(&mut self) -> Job {
        loop {
            tokio::select! {
                _ = self.children.recv() => if self.cmd_is_stopped() {
                    return Job::Stopped;
                },
                _ = self.continued.recv() => return Job::Continued,
            }
        }
    }

    /// Whether the terminal stopped CMD. A SIGSTOP from elsewhere is its sender's business.
    fn cmd_is_stopped(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.cmd), options).ok().flatten();
        let by = status.and_then(|status| status.stopping_signal());
        [Signal::TSTP, Signal::TTIN, Signal::TTOU]
            .iter()
            .any(|signal| by == Some(signal.as_raw()))
    }

    /// Stops the job, and returns when the shell continues it. Where no shell could do that, the
    /// kernel stops nothing, and this returns soon.
    pub(super) async fn stop(&mut self) {
        // What ignored the terminal's stop must not go on while `lock` cannot end it in time.
        kill_process_group(self.cmd, Signal::STOP).ok();
        kill_process_group(self.own, Signal::TSTP).ok();
        tokio::time::timeout(STOP_LAG, self.continued.recv())
            .await
            .ok();
    }

    /// Lets CMD go on, in front if `lock` is.
    pub(super) fn resume(&self) {
        if tcgetpgrp(std::io::stdin()).ok() == Some(self.own) {
            put_in_front(self.cmd);
        }
        // A group that has ended does not mind.
        kill_process_group(self.cmd, Signal::CONT).ok();
    }
}

impl Drop for Terminal {
    /// A script that started `lock` may want to read from the terminal next.
    fn drop(&mut self) {
        if tcgetpgrp(std::io::stdin()).ok() == Some(self.cmd) {
            put_in_front(self.own);
        }
    }
}

/// Makes a group the terminal's. The kernel stops a process for this that is not in front, unless
/// it has blocked the signal.
fn put_in_front(group: Pid) {
    let stop = SigSet::from(Blockable::SIGTTOU);
    let blocked = stop.thread_block();
    tcsetpgrp(std::io::stdin(), group).ok();
    if blocked.is_ok() {
        stop.thread_unblock().ok();
    }
}
