//! A process that ends with the value that stands for it, and with the test's process.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, kill_process};

/// How many lines of a log are shown.
const LINES_SHOWN: usize = 25;

/// A running component.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose output goes to `log`.
    pub(crate) fn start(program: &Path, arguments: &[String], log: PathBuf) -> Self {
        let output = File::options().create(true).append(true).open(&log);
        let output = output.expect("a log can be written");
        // The kernel is asked by a program of its own, since asking between fork and exec would
        // take unsafe code.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file can be shared"))
            .stderr(output);
        let child = spawn(command).expect("setpriv (util-linux) can be started");
        Self { child, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says so if it has ended.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().expect("our own child can be asked")?;
        let signal = status.signal();
        let how = signal.map_or_else(|| status.to_string(), |signal| format!("signal {signal}"));
        Some(format!("{how}\n{}", self.last_lines()))
    }

    /// The end of its log.
    pub(crate) fn last_lines(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        // It may have ended on its own.
        let _gone = kill_process(pid, signal).is_err();
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

type Order = (Command, Sender<io::Result<Child>>);

/// Starts a command from a thread that lives as long as this process: the signal on a parent's
/// death comes when the *thread* ends that started the child, and a test's thread ends early.
fn spawn(command: Command) -> io::Result<Child> {
    static ORDERS: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in orders {
                // The caller waits.
                answer.send(command.spawn()).ok();
            }
        });
        Mutex::new(sender)
    });
    let (answer, answered) = mpsc::channel();
    let sent = orders
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, answer));
    sent.expect("the thread lives as long as the process");
    answered
        .recv()
        .expect("the thread lives as long as the process")
}
