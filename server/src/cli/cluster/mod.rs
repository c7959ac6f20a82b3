//! `ringfence cluster …`: the members and settings of a cluster.

mod add;
mod configure;
mod members;
mod promote;
mod remove;
mod status;
mod transfer_leader;

pub(super) use status::status_object;

use std::process::ExitCode;

use clap::Subcommand;

use super::context::Context;
use super::{Failure, Global};

/// The commands about the cluster itself.
#[derive(Subcommand, Debug)]
pub(crate) enum ClusterCommand {
    Status(status::Status),
    Members(members::Members),
    Add(add::Add),
    Promote(promote::Promote),
    Remove(remove::Remove),
    TransferLeader(transfer_leader::TransferLeader),
    Configure(configure::Configure),
}

impl ClusterCommand {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        // Status asks every node separately: what one of them says of the others is no answer.
        if let Self::Status(command) = self {
            return command.run(global).await;
        }
        let context = Context::connect(global).await?;
        match self {
            Self::Status(command) => command.run(global).await,
            Self::Members(command) => command.run(&context).await,
            Self::Add(command) => command.run(&context).await,
            Self::Promote(command) => command.run(&context).await,
            Self::Remove(command) => command.run(&context).await,
            Self::TransferLeader(command) => command.run(&context).await,
            Self::Configure(command) => command.run(&context).await,
        }
    }
}
