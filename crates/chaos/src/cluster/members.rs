//! Members that come and go: `ringfence cluster`, run as a user would run it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use super::node::without_settings;
use super::{CLIENT_PORT, Home};
use crate::clock::now_ns;
use crate::sys;

/// How long a change of the members may take, retries included.
const LIMIT_NS: u64 = 25_000_000_000;
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(300);

/// What is to be done to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A learner becomes a voter.
    Promote,
    /// A member is removed.
    Remove,
}

impl Change {
    const fn word(self) -> &'static str {
        match self {
            Self::Promote => "promote",
            Self::Remove => "remove",
        }
    }
}

/// A change under way, on a thread of its own.
#[derive(Debug)]
pub(crate) struct Membership {
    done: Receiver<Result<(), String>>,
}

/// Whom to ask, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) program: PathBuf,
    pub(crate) from: Home,
    pub(crate) nodes: Vec<Home>,
}

impl Membership {
    /// Begins to change the member `name`, and tries again while the cluster refuses.
    pub(crate) fn begin(asking: &Asking, change: Change, name: &str) -> Self {
        let (tell, done) = channel();
        let (asking, name) = (asking.clone(), name.to_owned());
        let started = std::thread::Builder::new()
            .name("membership".to_owned())
            .spawn(move || {
                tell.send(asking.until_done(change, &name)).ok();
            });
        drop(started);
        Self { done }
    }

    /// What came of it, once it is known.
    pub(crate) fn done(&self) -> Option<Result<(), String>> {
        match self.done.try_recv() {
            Ok(done) => Some(done),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("it was never begun".to_owned())),
        }
    }
}

impl Asking {
    fn until_done(&self, change: Change, name: &str) -> Result<(), String> {
        let (quiet, pause) = channel::<()>();
        let begin = now_ns();
        let done = loop {
            let said = match self.ask(change, name) {
                Ok(()) => break Ok(()),
                Err(said) => said,
            };
            // Removed by an earlier try whose answer was lost.
            if change == Change::Remove && said.contains(&format!("no member {name}")) {
                break Ok(());
            }
            if now_ns().saturating_sub(begin) > LIMIT_NS {
                break Err(said);
            }
            // No thread sends: this is a pause.
            pause.recv_timeout(AGAIN).ok();
        };
        drop(quiet);
        done
    }

    fn ask(&self, change: Change, name: &str) -> Result<(), String> {
        let endpoints = self.nodes.iter();
        let endpoints = endpoints.map(|home| format!("{}:{CLIENT_PORT}", home.address));
        let mut command = Command::new(&self.program);
        without_settings(&mut command);
        command
            .args(["cluster", change.word(), name, "--endpoints"])
            .arg(endpoints.collect::<Vec<_>>().join(","))
            .stdin(Stdio::null())
            .process_group(0);
        sys::confine(&mut command, self.from.network);
        let output = command.output().map_err(|cause| cause.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}
