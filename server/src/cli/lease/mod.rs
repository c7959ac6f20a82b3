//! `ringfence lease …`: acquire leases, look at them, and end them.

mod acquire;
mod get;
mod history;
mod list;
mod release;
mod revoke;
mod transfer;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;

use super::Failure;
use super::context::Context;

/// The commands about leases.
#[derive(Subcommand, Debug)]
pub(crate) enum LeaseCommand {
    Acquire(acquire::Acquire),
    Get(get::Get),
    List(list::List),
    Watch(watch::Watch),
    Release(release::Release),
    Transfer(transfer::Transfer),
    Revoke(revoke::Revoke),
    History(history::History),
}

impl LeaseCommand {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        match self {
            Self::Acquire(command) => command.run(context).await,
            Self::Get(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
            Self::Watch(command) => command.run(context).await,
            Self::Release(command) => command.run(context).await,
            Self::Transfer(command) => command.run(context).await,
            Self::Revoke(command) => command.run(context).await,
            Self::History(command) => command.run(context).await,
        }
    }
}
