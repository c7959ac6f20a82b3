//! Running a test program until its first failure.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ringfence_planted::{Bug, VARIABLE};

use super::build::Program;

/// One run.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) ended: Ended,
    pub(super) seed: u64,
    pub(super) took: Duration,
}

/// How much is shown of what a simulation says, in characters.
const PROMISE_SHOWN: usize = 90;

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Every test passed.
    Passed,
    /// This test was the first to fail.
    Failed(String),
    /// A simulation broke this promise.
    Broke {
        /// The promise, and how.
        promise: String,
        /// How much time had been simulated by then, in seconds.
        at: String,
    },
    /// It died without a word, as one that overflows its stack or aborts does.
    Died,
    /// It was not through within its time.
    Hung,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(what) | Self::Broke { promise: what, .. } => f.write_str(what),
            Self::Died => f.write_str("(the process dies)"),
            Self::Hung => f.write_str("(hangs)"),
        }
    }
}

/// Which tests of a program are run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Only<'a> {
    /// Those with this in their names, but for some.
    Like(&'a str, &'a [String]),
    /// This one.
    Exactly(&'a str),
    /// No tests: a simulation, of the seed.
    Seed,
}

/// Runs some tests of the program with this bug.
///
/// # Errors
/// A sentence, if it cannot be started.
pub(super) fn trial(
    program: &Program,
    bug: Option<Bug>,
    seed: u64,
    only: Only<'_>,
    limit: Duration,
) -> Result<Trial, String> {
    let mut command = Command::new(&program.executable);
    match only {
        Only::Seed => {
            let into = program.executable.with_file_name("planted-sim");
            command
                .args(["--seed", &seed.to_string(), "--into"])
                .arg(into);
        }
        Only::Like(filter, but) => {
            command.args(Some(filter).filter(|filter| !filter.is_empty()));
            for test in but {
                command.args(["--skip", test]);
            }
        }
        Only::Exactly(test) => {
            command.args(["--exact", test]);
        }
    }
    command
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .env(VARIABLE, bug.map_or("", Bug::name))
        .env("PROPTEST_RNG_SEED", seed.to_string())
        // The first failure is enough: no smaller one is looked for, and none is kept.
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let start = now();
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.executable.display()))?;
    let ended = watch(&mut child, limit);
    // It may be dead already.
    child.kill().ok();
    child.wait().ok();
    Ok(Trial {
        ended,
        seed,
        took: start.elapsed(),
    })
}

fn watch(child: &mut Child, limit: Duration) -> Ended {
    let Some(output) = child.stdout.take() else {
        return Ended::Died;
    };
    let (told, lines) = channel();
    // Ends with the program, which is killed below at the latest.
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if told.send(line).is_err() {
                return;
            }
        }
    });
    let until = now() + limit;
    loop {
        match lines.recv_timeout(until.saturating_duration_since(now())) {
            Ok(line) => {
                if let Some(failed) = failed(&line).or_else(|| broke(&line)) {
                    return failed;
                }
            }
            Err(RecvTimeoutError::Timeout) => return Ended::Hung,
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Ended::Passed,
        _ => Ended::Died,
    }
}

/// The test that a line says has failed.
fn failed(line: &str) -> Option<Ended> {
    let test = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    // Behind the name there may be what should have happened.
    let name = test.split(' ').next()?;
    Some(Ended::Failed(name.to_owned()))
}

/// The promise that a line says was broken in a simulation.
fn broke(line: &str) -> Option<Ended> {
    let (seed, broken) = line.strip_prefix("seed ")?.split_once(" FAILED at ")?;
    let (at, promise) = broken.split_once(" s: ")?;
    let _number: u64 = seed.parse().ok()?;
    Some(Ended::Broke {
        promise: promise.chars().take(PROMISE_SHOWN).collect(),
        at: at.to_owned(),
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long it took is shown to a person"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_about_a_failure_names_a_test() {
        let named = |line| match failed(line) {
            Some(Ended::Failed(test)) => test,
            _ => String::new(),
        };
        assert_eq!(
            named("test story::of_a_lease ... FAILED"),
            "story::of_a_lease"
        );
        assert_eq!(named("test a - should panic ... FAILED"), "a");
        assert_eq!(named("test story::of_a_lease ... ok"), "");
        assert_eq!(named("test result: FAILED. 3 passed; 1 failed"), "");
    }

    #[test]
    fn a_simulation_tells_the_promise_and_the_time() {
        let broke = broke("seed 7 FAILED at 41.3 s: I7 is broken: it ended early");
        let told = Ended::Broke {
            promise: "I7 is broken: it ended early".to_owned(),
            at: "41.3".to_owned(),
        };
        assert_eq!(broke, Some(told));
    }
}
