//! `ringfence completions SHELL`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};

use super::{Failure, output};
use crate::Cli;

/// Print a completion script for a shell.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Whose script: put it where that shell looks for completions
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints the script to stdout.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "ringfence", &mut script);
        output::raw(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
