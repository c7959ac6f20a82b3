//! `ringfence man DIR`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory};

use super::{Failure, exit};
use crate::Cli;

/// Write the manual pages of all commands into a folder.
#[derive(Args, Debug)]
#[command(after_help = r"Example:
  ringfence man ~/.local/share/man/man1 && man ringfence-lease-acquire")]
pub(crate) struct Man {
    /// The folder, which exists; pages in it are replaced
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    /// Writes one page per command.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut all = Cli::command();
        // Options that all commands take are passed down here.
        all.build();
        write(&all, "ringfence", &self.folder)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The page of a command, and those of its subcommands. Hidden commands have none.
fn write(command: &Command, name: &str, folder: &Path) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    let of_page = |error: std::io::Error| {
        let why = format!(
            "cannot write {}: {error}; name a folder to write to",
            path.display()
        );
        Failure::new(exit::SYSTEM, "FAULT", why)
    };
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone()).manual("Ringfence");
    man.render(&mut page).map_err(of_page)?;
    fs::write(&path, page).map_err(of_page)?;
    let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
    for one in visible.filter(|one| one.get_name() != "help") {
        write(one, &format!("{name}-{}", one.get_name()), folder)?;
    }
    Ok(())
}
