//! Running CMD under a lease: signals pass to it, and it is dead before the lease may be another's.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;
use std::time::Duration;

use ringfence_client::{Client, HeldLease, Loss, Moment};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

use super::group;
use super::terminal::{Job, Terminal};
use crate::cli::context::why_silent;
use crate::cli::stderr::aside;
use crate::cli::tether::{self, Gate};
use crate::cli::watchdog::Watchdog;
use crate::cli::{Failure, exit};

/// How long before the window's end CMD gets SIGTERM, at most; a fifth of the TTL if that is less.
const TERM_LEAD_MAX: Duration = Duration::from_secs(5);
/// How long before the window's end CMD gets SIGKILL, at most; a twentieth of the TTL if that is
/// less. It is for the machine to take notice, not for CMD.
const KILL_LEAD_MAX: Duration = Duration::from_millis(500);

/// How often to look whether what CMD left behind has ended.
const GLANCE: Duration = Duration::from_millis(10);

/// CMD while it runs, the leader of a process group of its own.
pub(super) struct Running {
    process: tokio::process::Child,
    group: Pid,
    /// CMD waits at it for the watchdog, on systems without a death signal.
    gate: Option<Gate>,
    terminal: Option<Terminal>,
    forwarded: Forwarded,
}

/// How it went.
pub(super) enum Finished {
    /// CMD ended on its own, with this code.
    Code(u8),
    /// The lease was lost before; CMD has been ended.
    Lost(Failure),
}

impl Running {
    /// Starts CMD. It becomes the terminal's foreground group, if there is a terminal.
    ///
    /// # Errors
    /// If no process can be started, or no signals received. A CMD that is not found ends with
    /// 127, as in a shell.
    pub(super) fn start(
        command: &[OsString],
        environment: Vec<(&str, String)>,
    ) -> Result<Self, Failure> {
        let failed = |cause: std::io::Error| {
            let message = format!("cannot start {}: {cause}", command[0].display());
            Failure::new(exit::NOT_EXECUTABLE, "NOT_EXECUTABLE", message)
        };
        // From here on none is missed.
        let forwarded = Forwarded::new()?;
        let (mut tethered, gate) = tether::command(&command[0], &command[1..]).map_err(failed)?;
        tethered.envs(environment).process_group(0);
        let mut started = tokio::process::Command::from(tethered);
        let process = started.kill_on_drop(true).spawn().map_err(failed)?;
        let pid = process
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        let group = pid.expect("a process that was not waited for has an id");
        Ok(Self {
            process,
            group,
            gate,
            terminal: Terminal::share(group),
            forwarded,
        })
    }

    /// Waits until CMD ends, or ends it in time if the lease is lost.
    pub(super) async fn watch(
        mut self,
        client: &Client,
        lease: &HeldLease,
        ttl: Duration,
    ) -> Finished {
        let mut watchdog = self.guarded(lease.valid_until());
        if let Some(gate) = self.gate.take() {
            gate.open();
        }
        let finished = self.supervise(client, lease, ttl, &mut watchdog).await;
        if let Some(watchdog) = watchdog {
            watchdog.done();
        }
        finished
    }

    fn guarded(&self, until: Moment) -> Option<Watchdog> {
        let failed = |cause: std::io::Error| {
            aside(format!(
                "warning: no watchdog ({cause}): if this process is stopped, CMD runs on after its \
                 lease has ended"
            ));
        };
        Watchdog::start(self.group, until).map_err(failed).ok()
    }

    async fn supervise(
        &mut self,
        client: &Client,
        lease: &HeldLease,
        ttl: Duration,
        watchdog: &mut Option<Watchdog>,
    ) -> Finished {
        let term_lead = TERM_LEAD_MAX.min(ttl / 5);
        let kill_lead = KILL_LEAD_MAX.min(ttl / 20);
        let lost = lease.lost();
        tokio::pin!(lost);
        // Keep-alives are sent every third of the TTL; so often the window may have moved.
        let mut moved = tokio::time::interval(ttl / 6);
        loop {
            let valid_until = lease.valid_until();
            if let Some(Err(_)) = watchdog.as_mut().map(|dog| dog.extend(valid_until)) {
                aside(
                    "warning: the watchdog of this command was killed or stopped, here is another",
                );
                // The one before must not go on later: it knows nothing of what follows.
                if let Some(before) = watchdog.take() {
                    before.done();
                }
                *watchdog = self.guarded(valid_until);
            }
            let term_at = before(valid_until, term_lead);
            tokio::select! {
                biased;
                why = &mut lost => {
                    // The cluster may grant the lease to another at once, so CMD gets no more time
                    // than it would have had.
                    let kill_at = before(valid_until, kill_lead)
                        .min(client.now() + (term_lead - kill_lead));
                    return self.end(client, lease, &why, kill_at).await;
                }
                ended = self.process.wait() => {
                    let kill_at = before(lease.valid_until(), kill_lead)
                        .min(client.now() + (term_lead - kill_lead));
                    self.clear(client, kill_at).await;
                    return Finished::Code(code(ended.ok()));
                }
                signal = self.forwarded.next() => self.signal(signal),
                job = next(&mut self.terminal) => self.follow(&job, lease).await,
                _ = moved.tick() => {}
                () = client.sleep_until(term_at) => {
                    // A keep-alive may have been acknowledged meanwhile: then the window has moved.
                    if lease.valid_until() == valid_until {
                        let kill_at = before(valid_until, kill_lead);
                        return self.end(client, lease, &Loss::WindowPassed, kill_at).await;
                    }
                }
            }
        }
    }

    /// Does with the job what the terminal or the shell wants.
    async fn follow(&mut self, job: &Job, lease: &HeldLease) {
        let Some(terminal) = &mut self.terminal else {
            return;
        };
        if let Job::Stopped = job {
            terminal.stop().await;
        }
        // No process kept the session alive meanwhile. What is stopped and too late is never
        // continued.
        if lease.is_valid() {
            terminal.resume();
        }
    }

    /// Ends CMD: SIGTERM now, SIGKILL at `kill_at`. It is not taken back if the cluster answers
    /// after all: CMD has been asked to stop.
    async fn end(
        &mut self,
        client: &Client,
        lease: &HeldLease,
        why: &Loss,
        kill_at: Moment,
    ) -> Finished {
        let mut how = "SIGKILL";
        if client.now() < kill_at {
            self.signal(Signal::TERM);
            self.signal(Signal::CONT);
            how = "SIGTERM";
            tokio::select! {
                _ = self.process.wait() => {}
                () = client.sleep_until(kill_at) => how = "SIGTERM and SIGKILL",
            }
        }
        // Also what CMD has started and left behind in its group.
        self.signal(Signal::KILL);
        self.process.wait().await.ok();
        let message = format!(
            "lease {} with token {} is lost: {why}; CMD got {how}{}",
            lease.name(),
            lease.token(),
            why_silent(client, why),
        );
        Finished::Lost(
            Failure::new(exit::LOST, "LOST", message)
                .hint("run it again: it gets a new token; see `ringfence lease history`"),
        )
    }

    /// Ends what CMD has left behind in its group when it ended on its own, or it would work on
    /// without the lease: SIGTERM now, SIGKILL at `kill_at`.
    async fn clear(&self, client: &Client, kill_at: Moment) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        while group::runs(self.group) {
            if client.now() >= kill_at {
                self.signal(Signal::KILL);
                return;
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    fn signal(&self, signal: Signal) {
        // A group that has ended does not mind.
        kill_process_group(self.group, signal).ok();
    }
}

/// What happens next to the job at the terminal; nothing if there is none.
async fn next(terminal: &mut Option<Terminal>) -> Job {
    match terminal {
        Some(terminal) => terminal.next().await,
        None => std::future::pending().await,
    }
}

/// The exit code of a process as a shell gives it.
fn code(status: Option<ExitStatus>) -> u8 {
    let code = status.and_then(|status| status.code());
    let signal = status.and_then(|status| status.signal());
    let code = code.and_then(|code| u8::try_from(code).ok());
    let signal = signal.and_then(|signal| u8::try_from(signal).ok());
    code.or(signal.map(|signal| exit::SIGNAL_BASE.saturating_add(signal)))
        .unwrap_or(u8::MAX)
}

fn before(moment: Moment, lead: Duration) -> Moment {
    Moment::from_boot(moment.since_boot().saturating_sub(lead))
}

/// The signals that are passed on to CMD.
struct Forwarded {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Forwarded {
    fn new() -> Result<Self, Failure> {
        let receive = |kind| {
            signal(kind).map_err(|cause| {
                Failure::new(
                    exit::NOT_EXECUTABLE,
                    "FAULT",
                    format!("cannot receive signals: {cause}"),
                )
            })
        };
        Ok(Self {
            interrupt: receive(SignalKind::interrupt())?,
            terminate: receive(SignalKind::terminate())?,
            hangup: receive(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hangup.recv() => Signal::HUP,
        }
    }
}
