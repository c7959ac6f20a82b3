//! The words a person types after `cargo xtask`.

use clap::{Parser, Subcommand};

use crate::{bench, older, planted};

const AFTER_HELP: &str = "\
Exit codes: 0 all holds, 1 something does not (the last lines say what to do next), 2 usage.
When `verify` is red: `cargo xtask fix` corrects formatting and simple lints; the rest is by hand.";

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "cargo xtask: the project's own commands",
    after_help = AFTER_HELP
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One command, parsed. What stands above each is its help.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Read-only; everything that must hold before a change is merged: tidy, rustfmt, clippy
    /// without warnings, rustdoc without warnings, all tests and doctests
    #[command(verbatim_doc_comment)]
    Verify {
        /// The same without the tests
        #[arg(long)]
        quick: bool,
    },
    /// Writes: what clippy can correct safely, then rustfmt; ends with tidy
    Fix,
    /// Read-only, about a second: the rules of the house that no compiler checks (which crate may
    /// depend on which, banned words, long files, links)
    #[command(verbatim_doc_comment)]
    Tidy,
    /// Read-only: licences, second versions and origins of what the project builds on (deny.toml);
    /// needs cargo-deny
    #[command(verbatim_doc_comment)]
    Deny,
    /// Plants bugs, one at a time, and requires that tests notice each of them; minutes. --quick: only
    /// those of core, proto, wal and guard; --crate NAME, --bug NAME: only those of a crate, only
    /// that one
    #[command(verbatim_doc_comment)]
    Planted(planted::Request),
    /// Writes to target/sim: simulates whole clusters, 100 seeds of them; `cargo xtask sim --help`
    /// has the options, `--seed N` repeats one
    #[command(verbatim_doc_comment, disable_help_flag = true)]
    Sim {
        /// The words for the simulation, which parses them
        #[arg(
            value_name = "OPTIONS",
            allow_hyphen_values = true,
            trailing_var_arg = true
        )]
        words: Vec<String>,
    },
    /// Writes to the user's cache: builds the components of Kubernetes that tests start; needs Go;
    /// a quarter of an hour on two cores, once
    #[command(verbatim_doc_comment)]
    Kubernetes,
    /// Builds API servers of older versions of Kubernetes into the user's cache, and runs the tests with each
    /// of them that it can pass; needs Go; eight minutes on two cores for each, once
    #[command(verbatim_doc_comment)]
    OlderKubernetes(older::Request),
    /// Writes to the user's cache: builds the server of S3 that tests start; needs Go; two minutes
    /// on two cores, once
    #[command(verbatim_doc_comment)]
    S3,
    /// Writes to the user's cache: builds the etcd that tests start; needs Go; two minutes on two cores,
    /// once
    #[command(verbatim_doc_comment)]
    Etcd,
    /// Checks that everything compiles for macOS, and the client for Windows; installs into
    /// target/zig what compiles C for them; minutes
    #[command(verbatim_doc_comment)]
    Targets,
    /// Builds the program and the image for arm64, and runs three nodes of it under qemu; needs rustup,
    /// and of Debian's packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user; minutes
    #[command(verbatim_doc_comment)]
    Arm64,
    /// A real node of Kubernetes in namespaces of its own, and a cluster deployed on it; needs
    /// root, Go, and of Debian's packages containerd, runc, containernetworking-plugins, iptables,
    /// nftables and curl; minutes, and nothing is left behind
    #[command(verbatim_doc_comment)]
    TestNode {
        /// The Helm chart in place of the overlays: installations, an upgrade, a backup and a restore
        #[arg(long)]
        chart: bool,
        /// With the programs that .ci/run has linked by .ci/link-static
        #[arg(long)]
        built: bool,
    },
    /// Writes to target/bench: the same work on three nodes of Ringfence and of etcd, in turns, as ratios
    /// with their spread; needs Go, once; 4 minutes behind the builds, on a quiet machine
    #[command(verbatim_doc_comment)]
    Bench(bench::Request),
    /// Builds an older release into target/upgrade, and rolls a cluster of it to this build and to
    /// enforced rights under load; needs the repository's history; minutes
    #[command(verbatim_doc_comment)]
    Upgrade,
}

/// Parses the arguments behind the program's name.
///
/// # Errors
/// What clap says of them; also if help was asked for. Its exit code is 2, and 0 for help.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, clap::Error> {
    let named = std::iter::once("cargo xtask".to_owned()).chain(arguments);
    Cli::try_parse_from(named).map(|cli| cli.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, clap::Error> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    /// The exit code of words that are no command, and what they print.
    fn refused(line: &str) -> (i32, String) {
        let error = parsed(line).expect_err(line);
        (error.exit_code(), error.to_string())
    }

    #[test]
    fn every_word_behind_sim_is_the_simulations() {
        let words = ["--seed", "7", "--help"].map(str::to_owned).to_vec();
        assert_eq!(
            parsed("sim --seed 7 --help").expect("sim"),
            Command::Sim { words }
        );
    }

    #[test]
    fn a_node_gets_the_overlays_unless_the_chart_is_asked_for() {
        for (line, chart, built) in [
            ("test-node", false, false),
            ("test-node --chart", true, false),
            ("test-node --built", false, true),
        ] {
            let asked = Command::TestNode { chart, built };
            assert_eq!(parsed(line).expect(line), asked);
        }
    }

    #[test]
    fn help_is_no_failure_and_names_every_command() {
        let (code, help) = refused("--help");

        assert_eq!(code, 0);
        for command in [
            "verify",
            "fix",
            "tidy",
            "deny",
            "planted",
            "sim",
            "kubernetes",
            "older-kubernetes",
            "s3",
            "etcd",
            "targets",
            "arm64",
            "test-node",
            "upgrade",
        ] {
            assert!(help.contains(&format!("\n  {command} ")), "{help}");
            assert!(parsed(command).is_ok(), "{command}");
        }
        assert!(help.contains("Exit codes: 0"), "{help}");
        assert_eq!(refused("fix --help").0, 0);
    }

    #[test]
    fn a_usage_error_is_2_and_names_the_word() {
        for (line, word) in [
            ("", "Usage"),
            ("verfy", "verfy"),
            ("verify --fast", "--fast"),
            ("planted --bug", "--bug"),
            ("planted --bug nothing", "`nothing`"),
            ("planted --crate nothing", "`nothing`"),
            ("planted --slow", "--slow"),
        ] {
            let (code, message) = refused(line);
            assert_eq!(code, 2, "{line}");
            assert!(message.contains(word), "{message}");
        }
    }
}
