//! The client side of the binary: one file per subcommand.
//!
//! Commands talk to a cluster through the client crate and print either short text for people or,
//! with `--json`, one object (one per line for streams). What they may answer is fixed: results on
//! stdout, everything else on stderr, and the exit codes of [`exit`].

mod completions;
mod duration;
mod exit;
mod failure;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

pub(crate) use exit::HELP as EXIT_CODES_HELP;
use failure::Failure;

/// The client addresses of a cluster started by `ringfence dev`.
const DEV_ENDPOINTS: [&str; 3] = ["127.0.0.1:7420", "127.0.0.1:7430", "127.0.0.1:7440"];

/// Options that every client-side command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Client addresses of the nodes, separated by commas [default: the `dev` cluster,
    /// 127.0.0.1:7420,127.0.0.1:7430,127.0.0.1:7440]
    #[arg(
        long,
        global = true,
        env = "RINGFENCE_ENDPOINTS",
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        help_heading = "Global options"
    )]
    endpoints: Vec<String>,
    /// Print JSON: one object, or one per line for streams; errors as {"error":{…}} on stderr
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// How long a request may take, not counting what it waits in a queue
    #[arg(
        long,
        global = true,
        default_value = "5s",
        value_name = "DURATION",
        value_parser = duration::parse,
        help_heading = "Global options"
    )]
    timeout: Duration,
}

impl Global {
    /// Where the cluster is asked for: what was given, else the `dev` cluster.
    fn endpoints(&self) -> Vec<String> {
        if self.endpoints.is_empty() {
            return DEV_ENDPOINTS.map(str::to_owned).to_vec();
        }
        self.endpoints.clone()
    }
}

/// Every command but `serve`.
#[derive(Subcommand, Debug)]
pub(crate) enum ClientCommand {
    /// Print a completion script for a shell
    Completions(completions::Completions),
}

/// Runs `command` and says how the process ends.
pub(crate) fn run(command: ClientCommand, global: &Global) -> ExitCode {
    let done = match command {
        ClientCommand::Completions(command) => command.run(),
    };
    match done {
        Ok(code) => code,
        Err(failure) => failure.report(global),
    }
}
