//! The steps of `verify` and `fix`: run one after the other, timed, stopped at the first failure.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::cargo::cargo;
use crate::cli::Command;
use crate::{lean, tidy};

/// One step: a line of `cargo`, or the tidy check, which runs in this process.
struct Step {
    name: &'static str,
    work: Work,
    /// What to do when it fails.
    next: &'static str,
}

enum Work {
    Tidy,
    Lean,
    Cargo {
        arguments: &'static [&'static str],
        environment: &'static [(&'static str, &'static str)],
    },
}

const TIDY: Step = Step {
    name: "tidy",
    work: Work::Tidy,
    next: "each line above says what to do; repeat with `cargo xtask tidy`",
};

const LEAN: Step = Step {
    name: "lean client",
    work: Work::Lean,
    next: "each line above says what to do; see crates/xtask/src/lean.rs",
};

const FORMAT: Step = Step {
    name: "format",
    work: Work::Cargo {
        arguments: &["fmt", "--all", "--check"],
        environment: &[],
    },
    next: "run `cargo xtask fix`",
};

const CLIPPY: Step = Step {
    name: "clippy",
    work: Work::Cargo {
        arguments: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[],
    },
    next: "`cargo xtask fix` corrects the simple ones; a ban in clippy.toml names its reason",
};

const RUSTDOC: Step = Step {
    name: "rustdoc",
    work: Work::Cargo {
        arguments: &["doc", "--workspace", "--no-deps"],
        environment: &[("RUSTDOCFLAGS", "--cfg tokio_unstable -D warnings")],
    },
    next: "correct the doc comment that is named above",
};

const TESTS: Step = Step {
    name: "tests and doctests",
    work: Work::Cargo {
        arguments: &["test", "--workspace"],
        environment: &[],
    },
    next: "repeat the failing one alone: `cargo test -p PACKAGE NAME`; tests/README.md has the map",
};

const CLIPPY_FIX: Step = Step {
    name: "clippy --fix",
    work: Work::Cargo {
        arguments: &[
            "clippy",
            "--fix",
            "--workspace",
            "--all-targets",
            "--allow-dirty",
            "--allow-staged",
        ],
        environment: &[],
    },
    next: "make the code compile first: `cargo check --workspace --all-targets`",
};

const FORMAT_FIX: Step = Step {
    name: "format",
    work: Work::Cargo {
        arguments: &["fmt", "--all"],
        environment: &[],
    },
    next: "rustfmt names a file that it cannot parse; correct that one",
};

const DENY: Step = Step {
    name: "deny",
    work: Work::Cargo {
        arguments: &["deny", "check", "licenses", "bans", "sources"],
        environment: &[],
    },
    next: "without cargo-deny: `cargo install cargo-deny --locked`; else deny.toml has the rules",
};

fn steps(command: &Command) -> Vec<Step> {
    match command {
        // The cheap ones first: a mistake should cost seconds, not the test run.
        Command::Verify { quick: true } => vec![TIDY, LEAN, FORMAT, CLIPPY, RUSTDOC],
        Command::Verify { quick: false } => vec![TIDY, LEAN, FORMAT, CLIPPY, RUSTDOC, TESTS],
        Command::Fix => vec![CLIPPY_FIX, FORMAT_FIX, TIDY],
        Command::Tidy => vec![TIDY],
        Command::Deny => vec![DENY],
        // They are programs of their own.
        Command::Bench(_)
        | Command::Planted(_)
        | Command::Sim { .. }
        | Command::Kubernetes
        | Command::Etcd
        | Command::S3
        | Command::OlderKubernetes(_)
        | Command::Targets
        | Command::Arm64
        | Command::TestNode { .. }
        | Command::Upgrade => Vec::new(),
    }
}

/// Runs `command` on the workspace at `root`, telling each step and its duration.
#[must_use]
pub fn run(command: &Command, root: &Path) -> ExitCode {
    let steps = steps(command);
    let mut summary = String::new();
    for (position, step) in steps.iter().enumerate() {
        println!("== {} ({} of {})", step.name, position + 1, steps.len());
        let (passed, took) = timed(|| step.work.run(root));
        let seconds = took.as_secs_f64();
        if !passed {
            let left = steps.len() - position - 1;
            eprintln!("== {} FAILED after {seconds:.1} s", step.name);
            if left > 0 {
                eprintln!("   {left} more step(s) did not run");
            }
            eprintln!("   next: {}", step.next);
            return ExitCode::FAILURE;
        }
        println!("== {} done in {seconds:.1} s", step.name);
        // Writing to a String cannot fail.
        write!(summary, "\n   {:<20}{seconds:>7.1} s", step.name).ok();
    }
    println!("== all {} step(s) passed{summary}", steps.len());
    if matches!(command, Command::Verify { quick: true }) {
        println!("   --quick: the tests did NOT run; `cargo test --workspace` runs them");
    }
    ExitCode::SUCCESS
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a step took is shown to a person"
)]
fn timed(work: impl FnOnce() -> bool) -> (bool, Duration) {
    let start = Instant::now();
    let passed = work();
    (passed, start.elapsed())
}

impl Work {
    fn run(&self, root: &Path) -> bool {
        match self {
            Work::Tidy => run_tidy(root),
            Work::Lean => lean::check(root),
            Work::Cargo {
                arguments,
                environment,
            } => run_cargo(root, arguments, environment),
        }
    }
}

fn run_tidy(root: &Path) -> bool {
    match tidy::check(root) {
        Ok(violations) => {
            for violation in &violations {
                eprintln!("{violation}");
            }
            violations.is_empty()
        }
        Err(message) => {
            eprintln!("tidy could not look: {message}");
            false
        }
    }
}

fn run_cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> bool {
    let mut process = cargo();
    process
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root);
    match process.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("cannot start cargo: {error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(command: &Command) -> Vec<&'static str> {
        steps(command).iter().map(|step| step.name).collect()
    }

    #[test]
    fn quick_leaves_out_the_tests_and_nothing_else() {
        let mut quick = names(&Command::Verify { quick: true });
        quick.push(TESTS.name);

        assert_eq!(quick, names(&Command::Verify { quick: false }));
    }

    #[test]
    fn verify_writes_nothing() {
        for step in steps(&Command::Verify { quick: false }) {
            let Work::Cargo { arguments, .. } = step.work else {
                continue;
            };
            assert!(!arguments.contains(&"--fix"), "{} writes", step.name);
            if arguments.contains(&"fmt") {
                assert!(arguments.contains(&"--check"), "{} writes", step.name);
            }
        }
    }
}
