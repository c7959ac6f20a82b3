//! The clients, as the process sees them that started them.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringfence_check::history::Record;
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{CLIENT_PORT, stopped, without_settings};
use crate::stage::{MEMORY_SOCKET, Stage};
use crate::sys;
use crate::tally::Tally;
use crate::workload::{ORDER_CALM, ORDER_FLOOD};

/// How long clients get to end what they are doing.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Sets the dice of clients apart from those of the schedule.
const SALT: u64 = 0xc11e_7475;

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
    /// Starts the clients of a run. To be called on the thread that lives as long as the run.
    ///
    /// # Errors
    /// If one cannot be started.
    pub(crate) fn start(stage: &Stage, prefix: &str) -> io::Result<Self> {
        let mut crew = Self::default();
        let logs = stage.plan.report.join("clients");
        std::fs::remove_dir_all(&logs).ok();
        std::fs::create_dir_all(&logs)?;
        for number in 1..=stage.plan.clients {
            crew.members.push(member(stage, prefix, number, &logs)?);
        }
        Ok(crew)
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

    /// Clients that have ended though nobody told them to.
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
            // Nobody sends: this is a pause.
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

fn member(stage: &Stage, prefix: &str, number: u32, logs: &Path) -> io::Result<Member> {
    let plan = &stage.plan;
    let log = std::fs::File::create(logs.join(format!("c{number}.log")))?;
    let endpoints: Vec<String> = match &plan.target {
        Some(target) => target.endpoints.clone(),
        None => (0..plan.nodes as usize)
            .map(|place| format!("{}:{CLIENT_PORT}", stage.home(place).address))
            .collect(),
    };
    let mut command = Command::new(&plan.program);
    command
        .arg("chaos-client")
        .arg(format!("--number={number}"))
        .arg(format!(
            "--seed={}",
            plan.seed ^ SALT ^ u64::from(number) << 32
        ))
        .arg(format!("--nodes={}", endpoints.join(",")))
        .arg(format!(
            "--stores={}",
            stage.scratch.path("stores").display()
        ))
        .arg(format!("--memory={MEMORY_SOCKET}"))
        .arg(format!("--prefix={prefix}"))
        .arg(format!("--leases={}", plan.leases()))
        .current_dir(stage.scratch.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0);
    if plan.control {
        command.arg("--control");
    }
    if plan.open_guard {
        command.arg("--open-guard");
    }
    without_settings(&mut command);
    if let Some(target) = &plan.target {
        command.envs(target.environment.iter().cloned());
    }
    let network = stage.fabric.as_ref();
    let network = network.map(|fabric| fabric.namespace(stage.client_port(number)));
    sys::confine(&mut command, network);
    let mut process = command.spawn()?;
    let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let tally = Arc::clone(&stage.tally);
    let listening = std::thread::Builder::new()
        .name(format!("c{number}"))
        .spawn(move || listen(BufReader::new(output), &tally))?;
    Ok(Member {
        number,
        input: process.stdin.take(),
        process,
        listening: Some(listening),
    })
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
