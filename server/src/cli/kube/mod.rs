//! `ringfence kube …`: fences for what stands in Kubernetes.

mod policy;

use std::process::ExitCode;

use clap::Subcommand;

use super::{Failure, Global};

/// Commands about Kubernetes.
#[derive(Subcommand, Debug)]
pub(crate) enum KubeCommand {
    Policy(policy::Policy),
}

impl KubeCommand {
    pub(crate) async fn run(self, _global: &Global) -> Result<ExitCode, Failure> {
        match self {
            Self::Policy(command) => command.run(),
        }
    }
}
