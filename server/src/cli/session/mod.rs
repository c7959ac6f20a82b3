//! `ringfence session …`: open sessions, keep them alive, look at them, end them.

mod close;
mod evict;
mod get;
mod keep_alive;
mod list;
mod open;

use std::process::ExitCode;

use clap::Subcommand;

use super::Failure;
use super::context::Context;

/// The commands about sessions.
#[derive(Subcommand, Debug)]
pub(crate) enum SessionCommand {
    Open(open::Open),
    KeepAlive(keep_alive::KeepAlive),
    List(list::List),
    Get(get::Get),
    Close(close::Close),
    Evict(evict::Evict),
}

impl SessionCommand {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        match self {
            Self::Open(command) => command.run(context).await,
            Self::KeepAlive(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
            Self::Get(command) => command.run(context).await,
            Self::Close(command) => command.run(context).await,
            Self::Evict(command) => command.run(context).await,
        }
    }
}
