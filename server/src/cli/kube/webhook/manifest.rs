//! `ringfence kube webhook manifest`.

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_kube::policy::{Resource, ServiceAccount};
use ringfence_kube::webhook::{FailurePolicy, Hook, Where};

use crate::cli::{Failure, output};

/// Print the manifest that makes the API server ask `kube webhook serve`
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence kube webhook manifest --resource configmaps --service-account demo/controller \
    --service ringfence/ringfence-webhook --ca-file ca.pem --failure-policy fail | kubectl apply -f -")]
pub(crate) struct Manifest {
    /// What is judged, with all subresources: configmaps, deployments.apps; may be repeated
    #[arg(long = "resource", value_name = "PLURAL[.GROUP]", required = true)]
    resources: Vec<Resource>,
    /// The service account whose writes are judged; may be repeated
    #[arg(
        long = "service-account",
        value_name = "NAMESPACE/NAME",
        required = true
    )]
    accounts: Vec<ServiceAccount>,
    /// The Service before the webhook, which listens on port 443
    #[arg(long, value_name = "NAMESPACE/NAME", required_unless_present = "url")]
    service: Option<ServiceAccount>,
    /// The webhook's address, if it is no Service: https://HOST:PORT
    #[arg(long, value_name = "URL", conflicts_with = "service")]
    url: Option<String>,
    /// The CA that signed the webhook's certificate: a PEM file
    #[arg(long, value_name = "FILE")]
    ca_file: PathBuf,
    /// What is done with a write that the webhook, or the cluster behind it, does not answer for:
    /// fail refuses it, ignore admits it
    #[arg(long, value_name = "POLICY")]
    failure_policy: FailurePolicy,
}

impl Manifest {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let authority = std::fs::read(&self.ca_file).map_err(|why| {
            let path = self.ca_file.display();
            Failure::usage(format!("--ca-file {path}: {why}; expected a PEM file"))
        })?;
        let at = match (self.service, self.url) {
            (Some(service), _) => Where::Service(service),
            (None, url) => Where::Url(url.unwrap_or_default()),
        };
        let hook = Hook {
            resources: self.resources,
            accounts: self.accounts,
            at,
            authority,
            failure_policy: self.failure_policy,
        };
        let printed = hook
            .manifest()
            .map_err(|why| Failure::usage(why.to_string()))?;
        output::raw(printed.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}
