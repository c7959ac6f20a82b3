//! The clients, as the process sees them that started them.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringfence_check::history::Record;
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::stopped;
use crate::tally::Tally;
use crate::workload::{ORDER_CALM, ORDER_FLOOD};

/// How long clients get to end what they are doing.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// The client processes.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    number: u32,
    process: Child,
    /// Closing it tells the client to stop.
    input: Option<ChildStdin>,
    listening: Option<JoinHandle<()>>,
}

impl Crew {
    /// Starts a client. To be called on the thread that lives as long as the run.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn join(
        &mut self,
        number: u32,
        mut client: Command,
        tally: &Arc<Mutex<Tally>>,
    ) -> io::Result<()> {
        client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut process = client.spawn()?;
        let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let tally = Arc::clone(tally);
        let listening = std::thread::Builder::new()
            .name(format!("c{number}"))
            .spawn(move || listen(BufReader::new(output), &tally))?;
        self.members.push(Member {
            number,
            input: process.stdin.take(),
            process,
            listening: Some(listening),
        });
        Ok(())
    }

    fn member(&self, number: u32) -> Option<&Member> {
        self.members.iter().find(|member| member.number == number)
    }

    pub(crate) fn pause(&self, number: u32) {
        self.signal(number, Signal::STOP);
    }

    pub(crate) fn resume(&self, number: u32) {
        self.signal(number, Signal::CONT);
    }

    pub(crate) fn is_stopped(&self, number: u32) -> bool {
        self.member(number)
            .is_some_and(|member| stopped(member.process.id()))
    }

    fn signal(&self, number: u32, signal: Signal) {
        let pid = self.member(number).map(|member| member.process.id());
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // Not waited for yet, so the number cannot be another process's by now.
            kill_process(pid, signal).ok();
        }
    }

    /// Has clients fill the nodes' logs, or no longer.
    pub(crate) fn flood(&mut self, wanted: bool) {
        let order = if wanted { ORDER_FLOOD } else { ORDER_CALM };
        for member in &mut self.members {
            if let Some(input) = &mut member.input {
                // One that has ended is noticed elsewhere.
                writeln!(input, "{order}").ok();
            }
        }
    }

    /// Clients that have ended without an order to.
    pub(crate) fn deserters(&mut self) -> Vec<String> {
        let mut gone = Vec::new();
        self.members
            .retain_mut(|member| match member.process.try_wait() {
                Ok(Some(status)) => {
                    gone.push(format!("client c{} has ended: {status}", member.number));
                    false
                }
                _ => true,
            });
        gone
    }

    /// Tells all to stop and waits until they have; kills those that take too long, and names
    /// them.
    pub(crate) fn stop(&mut self) -> Vec<String> {
        for member in &mut self.members {
            if let Some(mut input) = member.input.take() {
                input.write_all(b"stop\n").ok();
            }
        }
        let (quiet, pause) = std::sync::mpsc::channel::<()>();
        let tick = Duration::from_millis(20);
        let ticks = STOP_LIMIT.as_millis() / tick.as_millis();
        for _ in 0..ticks {
            let done = |member: &mut Member| !matches!(member.process.try_wait(), Ok(None));
            if self.members.iter_mut().all(done) {
                break;
            }
            // No thread sends: this is a pause.
            pause.recv_timeout(tick).ok();
        }
        drop(quiet);
        let mut late = Vec::new();
        for member in &mut self.members {
            if matches!(member.process.try_wait(), Ok(None)) {
                late.push(format!("client c{} did not stop in time", member.number));
            }
        }
        self.members.clear();
        late
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        if let Some(listening) = self.listening.take() {
            listening.join().ok();
        }
    }
}

/// Takes what a client tells until it ends.
fn listen(mut output: impl BufRead, tally: &Mutex<Tally>) {
    let mut line = String::new();
    while let Ok(1..) = output.read_line(&mut line) {
        let record: Result<Record, _> = serde_json::from_str(&line);
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        match record {
            Ok(record) => tally.take(record),
            Err(_) => tally.unreadable += 1,
        }
        line.clear();
    }
}
