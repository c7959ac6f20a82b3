//! `ringfence completions SHELL`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};

use super::{Failure, output};
use crate::Cli;

/// Print a completion script for a shell.
#[derive(Args, Debug)]
#[command(after_help = r"Example:
  ringfence completions bash > ~/.local/share/bash-completion/completions/ringfence")]
pub(crate) struct Completions {
    /// Whose script: put it where that shell looks for completions
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints the script to stdout.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        // The generators offer hidden commands, too.
        let all = Cli::command();
        let visible = all
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        let mut shown = clap::Command::new("ringfence")
            .args(all.get_arguments().cloned())
            .subcommands(visible.cloned());
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut shown, "ringfence", &mut script);
        output::raw(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
