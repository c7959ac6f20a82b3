//! A process on the demo's stage: it is given cues, and tells what it does in lines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};

use crate::cli::nodes::Child;
use crate::cli::{Failure, exit};

/// How long a process may take for what it is expected to do next.
const STEP_LIMIT: Duration = Duration::from_secs(12);

/// A worker or a store.
pub(super) struct Actor {
    name: String,
    child: Child,
    cues: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Actor {
    /// Starts this binary with `arguments`; what it writes to stderr goes to `log`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(name: &str, arguments: &[String], log: &Path) -> Result<Self, Failure> {
        let started = Child::start_piped(arguments, log).and_then(|mut child| {
            let pipes = child.pipes().ok_or(std::io::ErrorKind::BrokenPipe)?;
            Ok((child, pipes))
        });
        let (child, (cues, lines)) = started.map_err(|cause| {
            Failure::new(
                exit::UNAVAILABLE,
                "FAULT",
                format!("cannot start {name}: {cause}"),
            )
        })?;
        let lines = BufReader::new(lines).lines();
        Ok(Self {
            name: name.to_owned(),
            child,
            cues,
            lines,
            log: log.to_owned(),
        })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets it begin its next step.
    ///
    /// # Errors
    /// If it is gone.
    pub(super) async fn cue(&mut self) -> Result<(), Failure> {
        let given = self.cues.write_all(b"go\n").await;
        given.map_err(|_| not_told(&self.name, "to wait for its cue", "it is gone"))
    }

    /// Waits until it tells what it did: `word`, and numbers behind it.
    ///
    /// # Errors
    /// If it does something else, or nothing in time.
    pub(super) async fn does(&mut self, word: &str) -> Result<Vec<i64>, Failure> {
        let line = match tokio::time::timeout(STEP_LIMIT, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None) | Err(_)) => return Err(self.has_ended(word)),
            Err(_) => return Err(not_told(&self.name, word, "nothing within 12 s")),
        };
        let Some(numbers) = line.strip_prefix(word) else {
            return Err(not_told(&self.name, word, &line));
        };
        let numbers = numbers.split_whitespace().map(str::parse);
        numbers
            .collect::<Result<_, _>>()
            .map_err(|_| not_told(&self.name, word, &line))
    }

    /// The same for one number.
    ///
    /// # Errors
    /// As [`Actor::does`].
    pub(super) async fn tells(&mut self, word: &str) -> Result<i64, Failure> {
        match self.does(word).await?[..] {
            [number] => Ok(number),
            _ => Err(not_told(&self.name, word, "no number behind it")),
        }
    }

    /// Waits for the address in its first line.
    ///
    /// # Errors
    /// If it does not tell one in time.
    pub(super) async fn listens(&mut self) -> Result<std::net::SocketAddr, Failure> {
        let line = tokio::time::timeout(STEP_LIMIT, self.lines.next_line()).await;
        let line = line.ok().and_then(Result::ok).flatten().unwrap_or_default();
        let address = line
            .strip_prefix("listening ")
            .and_then(|word| word.parse().ok());
        address.ok_or_else(|| not_told(&self.name, "listening", &line))
    }

    fn has_ended(&self, expected: &str) -> Failure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        not_told(
            &self.name,
            expected,
            &format!("it has ended: {}", log.trim()),
        )
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Ends it.
    pub(super) async fn end(mut self) {
        self.child.kill().await;
    }
}

/// Something went otherwise than the demo tells it.
pub(super) fn not_told(who: &str, expected: &str, seen: &str) -> Failure {
    let message = format!("not as announced: {who} was expected to say `{expected}`, but: {seen}");
    Failure::new(exit::NEGATIVE, "NOT_AS_TOLD", message)
        .hint("run it again; on a busy machine processes may be too slow for the story")
}
