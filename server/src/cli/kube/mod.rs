//! `ringfence kube …`: fences for what stands in Kubernetes.

mod canary;
mod figures;
mod guarded;
mod policy;
mod webhook;

use std::process::ExitCode;

use clap::Subcommand;

use super::{Failure, Global};

/// Commands about Kubernetes.
#[derive(Subcommand, Debug)]
pub(crate) enum KubeCommand {
    Policy(Box<policy::Policy>),
    Canary(canary::Canary),
    /// Let the API server ask the cluster about each write: one rule for many leases
    #[command(subcommand, after_help = webhook::EXAMPLE)]
    Webhook(webhook::WebhookCommand),
}

impl KubeCommand {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        match self {
            Self::Policy(command) => command.run(),
            Self::Canary(command) => command.run(global).await,
            Self::Webhook(command) => command.run(global).await,
        }
    }
}
