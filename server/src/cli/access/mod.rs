//! `ringfence access …`: who may do what.

mod apply;
mod ban;
mod change;
mod limits;
mod list;
mod mode;
mod rule;
mod test;
mod token;
mod whoami;

use std::process::ExitCode;

use clap::Subcommand;

use super::context::Context;
use super::{Failure, Global};

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
    #[command(
        subcommand,
        after_help = "Example:\n  umask 077\n  ringfence access token create deploy --ttl 30d > deploy.token"
    )]
    Token(token::TokenCommand),
}

impl AccessCommand {
    /// Runs it. What is wrong with the command itself is said before the cluster is asked.
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        match &self {
            Self::Grant(command) => drop(command.rule()?),
            Self::Revoke(command) => drop(command.rule()?),
            Self::Apply(command) => drop(command.wanted()?),
            _ => {}
        }
        let context = &Context::connect(global).await?;
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
