//! `lock` at a terminal: keys reach CMD, the shell gets its terminal back.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Dev, await_that, ringfence};

/// A process that has a terminal of its own, and the keyboard and screen of it.
pub(crate) struct Terminal {
    pub(crate) process: Child,
    keyboard: File,
    pub(crate) screen: Arc<Mutex<String>>,
    dir: TempDir,
}

impl Terminal {
    /// Starts a program at a new terminal, in a directory of its own. It finds this build's
    /// binary as `$R`, and the cluster.
    pub(crate) fn start(dev: &Dev, program: &[&str]) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let path = ptsname(&controller, Vec::new()).unwrap();
        let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
        let mut options = File::options();
        options.read(true).write(true).custom_flags(flags);
        let user = options.open(path.to_str().unwrap()).unwrap();

        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).args(program);
        command
            .env("R", ringfence().get_program())
            .env("RINGFENCE_ENDPOINTS", dev.endpoints())
            .env("PS1", "> ")
            .env_remove("ENV")
            .current_dir(dir.path())
            .stdin(user.try_clone().unwrap())
            .stdout(user.try_clone().unwrap())
            .stderr(user);
        let process = command.spawn().unwrap();
        let keyboard = File::from(controller);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut shown, kept) = (keyboard.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // It ends with an error when no process has the terminal any more.
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                kept.lock().unwrap().push_str(&text);
            }
        });
        Self {
            process,
            keyboard,
            screen,
            dir,
        }
    }

    /// A shell with job control.
    fn shell(dev: &Dev) -> Self {
        Self::start(dev, &["sh", "-i"])
    }

    /// A script for `lock` to run.
    fn script(&self, text: &str) {
        std::fs::write(self.dir.path().join("cmd"), text).unwrap();
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until a line on the screen ends like this.
    #[track_caller]
    fn shows(&self, line: &str) {
        let seen = || self.screen.lock().unwrap().clone();
        let shown = || seen().lines().any(|shown| shown.trim_end().ends_with(line));
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        for _ in 0..1_500 {
            if shown() {
                return;
            }
            let pause = std::time::Duration::from_millis(20);
            receiver.recv_timeout(pause).unwrap_err();
        }
        drop(sender);
        panic!("`{line}` is not on the screen:\n{}", seen());
    }
}

impl Drop for Terminal {
    /// What hangs up ends what runs there.
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn holder(dev: &Dev) -> Value {
    dev.run(&["lease", "get", "jobs/a"]).object()["holder"].clone()
}

#[test]
fn ctrl_c_reaches_cmd_once_and_its_code_comes_back() {
    let dev = Dev::start(1);
    let mut terminal = Terminal::shell(&dev);
    // It counts for a while after the first: a second one would have come at the same time.
    terminal.script(
        "n=0; trap 'n=$((n+1))' INT; echo begun
         while [ $n = 0 ]; do sleep 0.1; done
         for again in 1 2 3 4 5; do sleep 0.1; done
         echo got $n; exit 5",
    );

    terminal.types("$R lock jobs/a -- sh cmd; echo code=$?\n");
    terminal.shows("begun");
    terminal.types("\x03");

    terminal.shows("got 1");
    terminal.shows("code=5");
    assert_eq!(holder(&dev), Value::Null);
    assert_eq!(dev.run(&["session", "list"]).out, "");
    // The shell has its terminal back.
    terminal.types("read line; echo \"read $line\"\n");
    terminal.types("this\n");
    terminal.shows("read this");
}

#[test]
fn ctrl_c_before_the_grant_gives_up_the_place_in_the_queue() {
    let dev = Dev::start(1);
    dev.run(&["lease", "acquire", "jobs/a", "--ttl", "1m"])
        .object();
    let mut terminal = Terminal::shell(&dev);

    terminal.types("$R lock jobs/a --wait 1m -- true; echo code=$?\n");
    await_that("lock waits", || {
        dev.run(&["lease", "get", "jobs/a"]).object()["waiters"] == 1
    });
    terminal.types("\x03");

    terminal.shows("code=130");
    assert_eq!(dev.run(&["lease", "get", "jobs/a"]).object()["waiters"], 0);
}

#[test]
fn ctrl_z_stops_the_job_and_the_shell_continues_it() {
    let dev = Dev::start(1);
    let mut terminal = Terminal::shell(&dev);
    terminal.script("echo begun; read line; echo \"read $line\"; exit 4");

    terminal.types("$R lock jobs/a --ttl 1m -- sh cmd; echo code=$?\n");
    terminal.shows("begun");
    terminal.types("\x1a");
    // What is typed while the job stops may be lost.
    terminal.shows("code=148");
    terminal.types("echo the shell is $((1+1))\n");
    terminal.shows("the shell is 2");
    assert_ne!(holder(&dev), Value::Null);
    terminal.types("fg; echo after=$?\n");
    terminal.types("this\n");

    terminal.shows("read this");
    terminal.shows("after=4");
    assert_eq!(holder(&dev), Value::Null);
}

#[test]
fn a_job_that_is_continued_after_its_ttl_does_no_more_work() {
    let dev = Dev::start(1);
    let mut terminal = Terminal::shell(&dev);
    terminal.script("echo begun; trap 'echo told > told' TERM CONT; while :; do read line; echo $line > wrote; done");

    terminal.types("$R lock jobs/a --ttl 2s -- sh cmd; echo code=$?\n");
    terminal.shows("begun");
    terminal.types("\x1a");
    terminal.shows("code=148");
    await_that("its lease ends", || holder(&dev) == Value::Null);
    terminal.types("fg; echo after=$?\n");

    terminal.shows("after=76");
    assert!(!terminal.dir.path().join("told").exists());
    assert!(!terminal.dir.path().join("wrote").exists());
}

#[test]
fn a_job_in_the_background_leaves_the_terminal_alone() {
    let dev = Dev::start(1);
    let mut terminal = Terminal::shell(&dev);
    terminal.script("echo begun > begun; while [ ! -e go ]; do sleep 0.1; done; exit 3");

    terminal.types("$R lock jobs/a -- sh cmd & \n");
    let begun = terminal.dir.path().join("begun");
    await_that("CMD runs", || begun.exists());
    terminal.types("read line; echo \"read $line\"\n");
    terminal.types("this\n");
    terminal.shows("read this");
    std::fs::write(terminal.dir.path().join("go"), "").unwrap();
    terminal.types("wait $!; echo code=$?\n");

    terminal.shows("code=3");
}

#[test]
fn a_script_reads_from_the_terminal_after_lock() {
    let dev = Dev::start(1);
    let script = "$R lock jobs/a -- true; read line; echo \"read $line\"";
    let mut terminal = Terminal::start(&dev, &["sh", "-c", script]);

    terminal.types("this\n");

    terminal.shows("read this");
    assert_eq!(terminal.process.wait().unwrap().code(), Some(0));
}
