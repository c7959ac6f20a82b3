//! `ringfence kube webhook …`: the API server asks, the cluster answers.

mod asking;
mod door;
mod manifest;
mod reviews;
mod serving;

use std::process::ExitCode;

use clap::Subcommand;

use crate::cli::{Failure, Global};

/// How both are used together.
pub(super) const EXAMPLE: &str = r"Example:
  ringfence kube webhook serve --cert-file tls.crt --key-file tls.key --carrier impersonate
  ringfence kube webhook manifest --resource configmaps --service-account demo/controller \
    --service ringfence/ringfence-webhook --ca-file ca.pem --failure-policy fail | kubectl apply -f -";

/// Commands about the webhook.
#[derive(Subcommand, Debug)]
pub(crate) enum WebhookCommand {
    Serve(serving::Serve),
    Manifest(manifest::Manifest),
}

impl WebhookCommand {
    pub(super) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        match self {
            Self::Serve(command) => command.run(global).await,
            Self::Manifest(command) => command.run(),
        }
    }
}
