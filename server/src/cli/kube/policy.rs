//! `ringfence kube policy`: the manifests by which an API server refuses stale writes.

use std::process::ExitCode;

use ringfence_kube::policy::{Resource, WithoutLease};

use super::guarded::Guarded;
use crate::cli::{Failure, output};

/// Print policies by which Kubernetes refuses the writes of stale holders
///
/// Nothing is sent anywhere: read what is printed, then give it to `kubectl apply -f -`. The same
/// flags print the same text, and applying it twice changes nothing.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence kube policy --lease demo/leader --resource deployments.apps --resource configmaps \
    --carrier impersonate --service-account demo/controller | kubectl apply -f -")]
pub(crate) struct Policy {
    #[command(flatten)]
    guarded: Guarded,
    /// What the lease guards, with all subresources: configmaps, deployments.apps; may be repeated
    #[arg(long = "resource", value_name = "PLURAL[.GROUP]", required = true)]
    resources: Vec<Resource>,
    /// While there is no such Lease: deny all writes to these resources, by anybody, or allow what
    /// the mark on the object allows
    #[arg(long, value_enum, default_value_t = Missing::Deny)]
    without_lease: Missing,
    /// Leave out what all leases of a Kubernetes share, as for deleting the rest
    #[arg(long)]
    without_keeper: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Missing {
    Deny,
    Allow,
}

impl Policy {
    /// Prints them.
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let without_lease = match self.without_lease {
            Missing::Deny => WithoutLease::Deny,
            Missing::Allow => WithoutLease::Allow,
        };
        let guarded = self.guarded;
        let fencing = guarded.fencing(self.resources, without_lease, !self.without_keeper)?;
        output::raw(fencing.manifests().as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}
