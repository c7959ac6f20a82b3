//! A server process that ends with the value that stands for it, and with the test's own process.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process};

/// How long a server may take to say that it is ready.
const READY: Duration = Duration::from_secs(120);

/// A running server.
pub(super) struct Process {
    pid: Pid,
    /// Dropped to let go of the thread that waits for the process.
    thread: Option<JoinHandle<()>>,
    stop: Signal,
}

/// A command that runs as `user` if this is root, since some servers refuse to be root, and that
/// gets `signal` when the thread that started it ends, however that happens.
pub(super) fn command(program: &Path, user: Option<&str>, signal: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--pdeathsig={signal}"));
    if let Some(user) = user.filter(|_| getuid().is_root()) {
        command.args([
            format!("--reuid={user}"),
            format!("--regid={user}"),
            "--init-groups".to_owned(),
        ]);
    }
    command.arg("--").arg(program);
    command
}

/// Runs a command to its end, which must be a good one.
pub(super) fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
    output.stdout
}

impl Process {
    /// Starts a server that says `ready` on its output. `stop` is the signal that ends it for good.
    ///
    /// # Errors
    /// What it said instead.
    pub(super) fn start(
        mut command: Command,
        ready: &'static str,
        stop: Signal,
    ) -> Result<Self, String> {
        let (told, news) = channel();
        // A thread of its own, which outlives the test that happens to start the server: the
        // signal on its parent's death is sent when the parent's thread ends.
        let thread = thread::spawn(move || {
            let spawned = command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
            told.send(News::Started(child.id())).unwrap();
            follow(child.stdout.take().unwrap(), told.clone());
            follow(child.stderr.take().unwrap(), told.clone());
            drop(told);
            wait(&mut child);
        });
        let mut process = Self {
            pid: Pid::INIT,
            thread: Some(thread),
            stop,
        };
        process.await_ready(&news, ready)?;
        Ok(process)
    }

    fn await_ready(&mut self, news: &Receiver<News>, ready: &str) -> Result<(), String> {
        let mut log = String::new();
        loop {
            match news.recv_timeout(READY) {
                Ok(News::Started(pid)) => self.pid = Pid::from_raw(pid.cast_signed()).unwrap(),
                Ok(News::Line(line)) => {
                    log += &line;
                    log.push('\n');
                    if line.contains(ready) {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(format!("not ready: {log}")),
                Err(RecvTimeoutError::Disconnected) => return Err(format!("it ended: {log}")),
            }
        }
    }

    /// Ends it with `signal`, and waits until it is gone.
    pub(super) fn end(mut self, signal: Signal) {
        self.stop = signal;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Pid 1 stands for one that never started.
        if self.pid != Pid::INIT {
            // It may have ended on its own.
            kill_process(self.pid, self.stop).ok();
        }
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

enum News {
    Started(u32),
    Line(String),
}

/// Reads to the end, so that the server never waits for a reader.
fn follow(output: impl Read + Send + 'static, told: Sender<News>) {
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            // No task listens once the server is ready.
            told.send(News::Line(String::from_utf8_lossy(&line).into_owned()))
                .ok();
        }
    });
}

fn wait(child: &mut Child) -> ExitStatus {
    child.wait().unwrap()
}

/// `name=value` for a server's command line.
pub(super) fn setting(name: &str, value: impl AsRef<OsStr>) -> String {
    format!("{name}={}", value.as_ref().to_string_lossy())
}
