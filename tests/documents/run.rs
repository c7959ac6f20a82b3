//! Running a block as a person would who copies it into a shell.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_tests::S3;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::blocks::Block;

/// How long a block may take.
const TAKES_MAX: Duration = Duration::from_secs(90);
/// Where the nodes of `dev` listen unless they are asked for other ports.
const DEV_PORTS: [u16; 9] = [7420, 7421, 7422, 7430, 7431, 7432, 7440, 7441, 7442];

/// When a block is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// When its last command has ended.
    ByItself,
    /// The same, and it wants a cluster at the addresses that commands look for by themselves.
    WithDev,
    /// The same, and a bucket of S3 in its environment. It is left out where there is no such server.
    WithBucket,
}

/// Who has the ports that are printed: one test at a time.
static PORTS: Mutex<()> = Mutex::new(());

/// Waits until no other test of this process uses the ports that are printed.
pub(crate) fn ports() -> MutexGuard<'static, ()> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the built binary at hand.
pub(crate) struct Runner {
    binary: PathBuf,
}

impl Runner {
    pub(crate) fn new() -> Self {
        Self {
            binary: ringfence_tests::server().clone(),
        }
    }

    /// Runs a block in an empty folder, in which `target/release/ringfence` and, on the path,
    /// `ringfence` are the binary of this build.
    pub(crate) fn run(&self, block: &Block, ends: Ends, expected: &[&str]) -> Result<(), String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let release = folder.path().join("target/release");
        std::fs::create_dir_all(&release).expect("an empty folder can be written");
        std::os::unix::fs::symlink(&self.binary, release.join("ringfence")).expect("a link");
        let _one_at_a_time = ports();
        wait_for_free_ports();
        let s3 = (ends == Ends::WithBucket).then(S3::start);
        if let Some(None) = s3 {
            return Ok(());
        }
        let s3 = s3.flatten();
        let _dev = (ends != Ends::ByItself).then(|| self.dev(folder.path()));

        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("bash");
        shell
            .args(["-eu", "-c", &format!("exec 2>&1\n{}", block.text)])
            .env("PATH", format!("{}:{path}", release.display()))
            .env_remove("RINGFENCE_ENDPOINTS")
            .envs(s3.iter().flat_map(S3::variables))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut group = Group::start(&mut shell);
        let ended = group.wait(TAKES_MAX);
        let said = group.said();
        let missing = expected.iter().find(|text| !said.contains(**text));
        match (ended, missing) {
            (None, _) => Err(format!("not over after {TAKES_MAX:?}:\n{said}")),
            (Some(false), _) => Err(format!("it failed:\n{said}")),
            (Some(true), Some(text)) => Err(format!("{text:?} is not in its output:\n{said}")),
            (Some(true), None) => Ok(()),
        }
    }

    /// `ringfence dev` at its own ports, for as long as what is returned lives.
    pub(crate) fn dev(&self, folder: &Path) -> Group {
        wait_for_free_ports();
        let mut dev = Command::new(&self.binary);
        dev.args(["--json", "dev", "--data-dir"])
            .arg(folder.join("target/dev"))
            .stdout(Stdio::piped());
        let mut group = Group::start(&mut dev);
        let stdout = group.0.stdout.take().expect("it was asked for");
        let mut first = String::new();
        let mut lines = std::io::BufReader::new(stdout);
        std::io::BufRead::read_line(&mut lines, &mut first).expect("dev says when it is ready");
        assert!(first.contains("READY"), "dev did not start: {first}");
        group
    }
}

/// Waits until no `dev` of the block before holds its ports: its nodes end a little after it.
#[allow(
    clippy::disallowed_methods,
    reason = "one thread waits for the end of other processes; nothing else runs here"
)]
fn wait_for_free_ports() {
    let until = Instant::now() + TAKES_MAX;
    let mut held = DEV_PORTS.into_iter();
    let mut port = held.next();
    while let Some(number) = port {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, number)) {
            Ok(_) => port = held.next(),
            Err(cause) => {
                assert!(Instant::now() < until, "port {number} of `dev`: {cause}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// A process group that ends with its test.
pub(crate) struct Group(std::process::Child);

#[allow(
    clippy::disallowed_methods,
    reason = "one thread waits for one child process; nothing else runs here"
)]
impl Group {
    pub(crate) fn start(command: &mut Command) -> Self {
        let started = command.process_group(0).spawn();
        Self(started.unwrap_or_else(|cause| panic!("{command:?}: {cause}")))
    }

    /// Whether it ended well; `None` if it has not ended in time.
    pub(crate) fn wait(&mut self, takes_max: Duration) -> Option<bool> {
        let until = Instant::now() + takes_max;
        loop {
            if let Some(status) = self.0.try_wait().expect("the shell is a child") {
                return Some(status.success());
            }
            if Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it, and returns what it has printed.
    pub(crate) fn said(&mut self) -> String {
        // Servers that a block has started in the background have its stdout open.
        self.end();
        let mut said = String::new();
        let stdout = self.0.stdout.as_mut().expect("it was asked for");
        stdout.read_to_string(&mut said).expect("output is text");
        said
    }

    fn end(&mut self) {
        let group = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // A group that has ended does not mind.
            kill_process_group(group, Signal::INT).ok();
            std::thread::sleep(Duration::from_millis(300));
            kill_process_group(group, Signal::KILL).ok();
        }
        self.0.wait().ok();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}
