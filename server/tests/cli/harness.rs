//! Running the binary, and clusters of it.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

/// How long anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(20);

/// The binary, free of what the tests' own environment says.
pub(crate) fn ringfence() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command
        .env_remove("RINGFENCE_ENDPOINTS")
        .env_remove("RINGFENCE_SESSION")
        .env_remove("RINGFENCE_TOKEN_FILE");
    command.stdin(Stdio::null());
    command
}

/// What a finished command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Said {
    /// The objects on stdout.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The only object on stdout.
    #[track_caller]
    pub(crate) fn object(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        let [object] = &self.objects()[..] else {
            panic!("not one object: {self:?}")
        };
        object.clone()
    }

    /// The error on stderr, as programs read it.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let error: Value = serde_json::from_str(self.err.trim()).unwrap();
        error["error"].clone()
    }

    /// The reason of the error on stderr.
    #[track_caller]
    pub(crate) fn reason(&self) -> String {
        let error = self.error();
        let message = error["message"].as_str().unwrap();
        assert!(!message.is_empty(), "{self:?}");
        error["reason"].as_str().unwrap().to_owned()
    }
}

/// Runs a command to its end.
pub(crate) fn run(arguments: &[&str]) -> Said {
    ringfence().args(arguments).output().unwrap().into()
}

/// Waits for a condition that is sure to come.
#[track_caller]
pub(crate) fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    for _ in 0..PATIENCE.as_millis() / GLANCE.as_millis() {
        if holds() {
            return;
        }
        // No thread sends: this is a pause that ends with the test.
        receiver.recv_timeout(GLANCE).unwrap_err();
    }
    drop(sender);
    panic!("waited in vain: {what}");
}

/// How a child that should go on ends nevertheless within this time.
pub(crate) fn ends_within(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    for _ in 0..time.as_millis() / GLANCE.as_millis() {
        if let Some(ended) = child.try_wait().unwrap() {
            return Some(ended);
        }
        receiver.recv_timeout(GLANCE).unwrap_err();
    }
    drop(sender);
    None
}

/// Whether a process is there, a finished one that no process has waited for not counted.
pub(crate) fn lives(pid: i32) -> bool {
    let state = state(&format!("/proc/{pid}/stat"));
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok() && state != Some('Z')
}

/// The letter of proc(5) for the state of a process or a thread.
fn state(file: &str) -> Option<char> {
    let stat = std::fs::read_to_string(file).unwrap_or_default();
    stat.rsplit(") ").next()?.chars().next()
}

/// Sends a signal. A process that is stopped does nothing more when this returns: the thread that
/// takes the signal may have to wait for a processor, and the others go on until it has had one.
pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    if signal == Signal::STOP {
        await_that("every thread is stopped", || {
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            threads.flatten().all(|thread| {
                let file = thread.path().join("stat");
                matches!(state(&file.to_string_lossy()), Some('T' | 't' | 'Z' | 'X'))
            })
        });
    }
}

/// The process id of a child.
pub(crate) fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

/// A cluster started by `ringfence dev`; dropping it stops it as Ctrl-C does.
pub(crate) struct Dev {
    pub(crate) process: Child,
    pub(crate) lines: BufReader<ChildStdout>,
    /// What it said when it was ready.
    pub(crate) ready: Value,
}

impl Dev {
    /// Starts one with so many nodes and waits until it is ready.
    pub(crate) fn start(nodes: u8) -> Self {
        Self::start_with(nodes, &[])
    }

    /// The same with further arguments.
    pub(crate) fn start_with(nodes: u8, more: &[&str]) -> Self {
        loop {
            let port = free_port(nodes).to_string();
            let nodes = nodes.to_string();
            let mut process = ringfence()
                .args(["--json", "dev", "--port", &port, "--nodes", &nodes])
                .args(more)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(process.stdout.take().unwrap());
            let mut first = String::new();
            lines.read_line(&mut first).unwrap();
            if let Ok(ready) = serde_json::from_str::<Value>(&first) {
                assert_eq!(ready["kind"], "READY", "{first}");
                return Self {
                    process,
                    lines,
                    ready,
                };
            }
            // Another process took the port in between: that is an error of its own, try the next.
            let said = Said::from(process.wait_with_output().unwrap());
            assert_eq!(said.reason(), "PORT_IN_USE", "{said:?}");
        }
    }

    /// The client addresses.
    pub(crate) fn endpoints(&self) -> String {
        let endpoints = self.ready["endpoints"].as_array().unwrap();
        let endpoints: Vec<&str> = endpoints.iter().map(|one| one.as_str().unwrap()).collect();
        endpoints.join(",")
    }

    /// The process ids of the nodes.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let nodes = self.ready["nodes"].as_array().unwrap();
        nodes
            .iter()
            .map(|node| node["pid"].as_i64().unwrap().try_into().unwrap())
            .collect()
    }

    /// A command for this cluster, with `--json`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ringfence();
        command
            .env("RINGFENCE_ENDPOINTS", self.endpoints())
            .arg("--json")
            .args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command for this cluster to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs a command for this cluster to its end, with the output that people get.
    pub(crate) fn say(&self, arguments: &[&str]) -> Said {
        let mut command = ringfence();
        command.env("RINGFENCE_ENDPOINTS", self.endpoints());
        command.args(arguments).output().unwrap().into()
    }

    /// Stops it as Ctrl-C does, and waits until it has ended.
    pub(crate) fn interrupt(&mut self) -> Option<i32> {
        if let Ok(Some(ended)) = self.process.try_wait() {
            return ended.code();
        }
        signal(pid(&self.process), Signal::INT);
        self.process.wait().unwrap().code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        self.interrupt();
    }
}

/// A port from which on there is room for so many nodes, different in each call.
fn free_port(nodes: u8) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let spread = u16::try_from(std::process::id() % 200).unwrap() * 100;
    loop {
        let base = 21_000 + (spread + NEXT.fetch_add(1, Ordering::Relaxed) * 100) % 20_000;
        let all = (0..u16::from(nodes)).flat_map(|node| (0..3).map(move |above| node * 10 + above));
        let free = |above| TcpListener::bind(("127.0.0.1", base + above)).is_ok();
        if all.into_iter().all(free) {
            return base;
        }
    }
}
