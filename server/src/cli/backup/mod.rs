//! `ringfence backup`: a backup of the cluster in a file, and what is in one.

mod take;
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

use super::context::Context;
use super::{Failure, Global};

/// Back the cluster up into a file, and look into backups
///
/// A backup has everything that the cluster acknowledged before the command began: settings, rules,
/// the greatest tokens and the names that Pods hold. It has no sessions, no secrets and no cluster
/// tokens. Keep its digest in another place than the file: a restore needs both.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = r"Examples:
  ringfence backup /backups/prod.backup
  ringfence backup - | age -r KEY > prod.backup.age
  ringfence backup verify /backups/prod.backup --digest DIGEST"
)]
pub(crate) struct Backup {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    #[command(flatten)]
    take: take::Take,
}

#[derive(Subcommand, Debug)]
enum BackupCommand {
    Verify(verify::Verify),
}

impl Backup {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        match self.command {
            Some(BackupCommand::Verify(command)) => command.run(global),
            None => self.take.run(&Context::connect(global).await?).await,
        }
    }
}
