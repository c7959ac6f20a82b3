//! `ringfence access …`: who may do what.

mod apply;
mod ban;
mod change;
mod file;
mod limits;
mod list;
mod mode;
mod rule;
mod test;
mod token;
mod whoami;

use std::process::ExitCode;

use clap::Subcommand;

use super::Failure;
use super::context::Context;

/// The commands about rights.
#[derive(Subcommand, Debug)]
pub(crate) enum AccessCommand {
    Grant(rule::Grant),
    Revoke(rule::Revoke),
    List(list::List),
    Apply(apply::Apply),
    Ban(ban::Ban),
    Unban(ban::Unban),
    Test(test::Test),
    Whoami(whoami::Whoami),
    Mode(mode::SetMode),
    Limits(limits::Limits),
    /// Make tokens that prove who a program is, list and revoke them
    #[command(subcommand)]
    Token(token::TokenCommand),
}

impl AccessCommand {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        match self {
            Self::Grant(command) => command.run(context).await,
            Self::Revoke(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
            Self::Apply(command) => command.run(context).await,
            Self::Ban(command) => command.run(context).await,
            Self::Unban(command) => command.run(context).await,
            Self::Test(command) => command.run(context).await,
            Self::Whoami(command) => command.run(context).await,
            Self::Mode(command) => command.run(context).await,
            Self::Limits(command) => command.run(context).await,
            Self::Token(command) => command.run(context).await,
        }
    }
}
