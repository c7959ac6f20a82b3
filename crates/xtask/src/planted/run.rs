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
    /// It died without a word, as one that overflows its stack or aborts does.
    Died,
    /// It was not through within its time.
    Hung,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(test) => f.write_str(test),
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
    drop(child.kill());
    drop(child.wait());
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
                if let Some(test) = failed(&line) {
                    return Ended::Failed(test);
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

/// The test that a line says has failed, or the promise that was broken in a simulation.
fn failed(line: &str) -> Option<String> {
    if let Some((seed, broken)) = line.split_once(" FAILED: ")
        && seed.starts_with("seed ")
    {
        return Some(broken.chars().take(PROMISE_SHOWN).collect());
    }
    let test = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    // Behind the name there may be what should have happened.
    test.split(' ').next().map(str::to_owned)
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long it took is told to a person"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_about_a_failure_names_a_test() {
        let named = |line| failed(line).unwrap_or_default();
        assert_eq!(
            named("test story::of_a_lease ... FAILED"),
            "story::of_a_lease"
        );
        assert_eq!(named("test a - should panic ... FAILED"), "a");
        assert_eq!(
            named("seed 7 FAILED: I7: it ended early"),
            "I7: it ended early"
        );
        assert_eq!(named("test story::of_a_lease ... ok"), "");
        assert_eq!(named("test result: FAILED. 3 passed; 1 failed"), "");
    }
}
