//! `ringfence completions SHELL`.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{ClientCommand, Failure};

/// Print a completion script for a shell.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Whose script: put it where that shell looks for completions
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints the script to stdout.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut command = ClientCommand::augment_subcommands(clap::Command::new("ringfence"));
        clap_complete::generate(self.shell, &mut command, "ringfence", &mut std::io::stdout());
        Ok(ExitCode::SUCCESS)
    }
}
