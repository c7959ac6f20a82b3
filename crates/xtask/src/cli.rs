//! The words a person types after `cargo xtask`.

use crate::planted;

/// What `--help` prints.
pub const HELP: &str = "\
cargo xtask: the project's own commands

  cargo xtask verify           read-only; everything that must hold before a change is merged:
                               tidy, rustfmt, clippy without warnings, rustdoc without warnings,
                               all tests and doctests
  cargo xtask verify --quick   the same without the tests
  cargo xtask fix              writes: what clippy can correct safely, then rustfmt; ends with tidy
  cargo xtask tidy             read-only, under a second: the rules of the house that no compiler
                               checks (who may depend on whom, banned words, long files, links)
  cargo xtask planted          plants bugs, one at a time, and requires that tests notice each of
                               them; minutes. --quick: only those of core, proto, wal and guard;
                               --crate NAME, --bug NAME: only those of a crate, only that one
  cargo xtask sim [OPTIONS]    writes to target/sim: simulates whole clusters, 100 seeds of them;
                               `cargo xtask sim --help` has the options, `--seed N` repeats one
  cargo xtask kubernetes       writes to the user's cache: builds the components of Kubernetes that
                               tests start; needs Go; a quarter of an hour on two cores, once
  cargo xtask targets          checks that everything compiles for macOS, and the client for Windows;
                               installs into target/zig what compiles C for them; minutes
  cargo xtask test-node        a real node of Kubernetes in namespaces of its own, and a cluster
                               deployed on it; needs root, Go, and of Debian's packages containerd,
                               runc, containernetworking-plugins, iptables, nftables and curl;
                               minutes, and nothing is left behind

Exit codes: 0 all holds, 1 something does not (the last lines say what to do next), 2 usage.
When `verify` is red: `cargo xtask fix` corrects formatting and simple lints; the rest is by hand.";

/// One command, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Check everything; change nothing.
    Verify(Tests),
    /// Correct what can be corrected without thought.
    Fix,
    /// Check the rules of the house only.
    Tidy,
    /// Plant bugs and see whether tests notice.
    Planted(planted::Request),
    /// Simulate clusters; the words behind it are the simulation's.
    Simulate,
    /// Build the components of Kubernetes.
    Kubernetes,
    /// Check for other systems.
    Targets,
    /// Deploy on a real node of Kubernetes.
    TestNode,
    /// Explain the commands.
    Help,
}

/// Whether `verify` runs the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tests {
    /// Run them.
    Run,
    /// Leave them to the caller, who runs them anyway.
    Skip,
}

/// Parses the arguments after `cargo xtask`.
///
/// # Errors
/// A sentence naming the word that is not understood.
pub fn parse(arguments: &[String]) -> Result<Command, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if words.first() == Some(&"sim") {
        return Ok(Command::Simulate);
    }
    if words
        .iter()
        .any(|word| matches!(*word, "--help" | "-h" | "help"))
    {
        return Ok(Command::Help);
    }
    match words.as_slice() {
        ["verify"] => Ok(Command::Verify(Tests::Run)),
        ["verify", "--quick"] => Ok(Command::Verify(Tests::Skip)),
        ["fix"] => Ok(Command::Fix),
        ["tidy"] => Ok(Command::Tidy),
        ["kubernetes"] => Ok(Command::Kubernetes),
        ["targets"] => Ok(Command::Targets),
        ["test-node"] => Ok(Command::TestNode),
        ["planted", options @ ..] => parse_planted(options).map(Command::Planted),
        [] => Err("error: which command?".to_owned()),
        [
            "verify" | "fix" | "tidy" | "kubernetes" | "targets" | "test-node",
            extra,
            ..,
        ] => Err(format!(
            "error: unexpected `{extra}`; only `verify` takes an option, and that is `--quick`"
        )),
        [unknown, ..] => Err(format!("error: no command is called `{unknown}`")),
    }
}

fn parse_planted(options: &[&str]) -> Result<planted::Request, String> {
    let mut request = planted::Request::default();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--quick" => request.quick = true,
            "--crate" => {
                let name = options.next().ok_or("error: --crate wants a name")?;
                request.home = Some(planted::home_named(name)?);
            }
            "--bug" => {
                let name = options.next().ok_or("error: --bug wants a name")?;
                request.bug = Some(planted::bug_named(name)?);
            }
            unknown => {
                return Err(format!(
                    "error: unexpected `{unknown}`; `planted` takes --quick, --crate NAME and --bug NAME"
                ));
            }
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn every_command_of_the_help_is_understood() {
        assert_eq!(parsed("verify"), Ok(Command::Verify(Tests::Run)));
        assert_eq!(parsed("verify --quick"), Ok(Command::Verify(Tests::Skip)));
        assert_eq!(parsed("fix"), Ok(Command::Fix));
        assert_eq!(parsed("tidy"), Ok(Command::Tidy));
        assert_eq!(parsed("kubernetes"), Ok(Command::Kubernetes));
        assert_eq!(parsed("targets"), Ok(Command::Targets));
        assert_eq!(parsed("test-node"), Ok(Command::TestNode));
        assert_eq!(parsed("sim --seed 7"), Ok(Command::Simulate));
        assert_eq!(parsed("fix --help"), Ok(Command::Help));
        let quick = planted::Request {
            quick: true,
            ..planted::Request::default()
        };
        assert_eq!(parsed("planted --quick"), Ok(Command::Planted(quick)));
        assert!(parsed("planted --bug").is_err());
        assert!(parsed("planted --bug nothing").is_err());
        assert!(parsed("planted --slow").is_err());
    }

    #[test]
    fn an_unknown_word_is_named() {
        assert!(parsed("verfy").is_err_and(|message| message.contains("`verfy`")));
        assert!(parsed("verify --fast").is_err_and(|message| message.contains("`--fast`")));
        assert!(parsed("").is_err());
    }
}
