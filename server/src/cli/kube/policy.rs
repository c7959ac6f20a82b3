//! `ringfence kube policy`: the manifests by which an API server refuses stale writes.

use std::process::ExitCode;

use ringfence_kube::FLOORS;
use ringfence_kube::policy::{FencingSpec, Resource, WithoutLease};

use super::guarded::{Guarded, fencing};
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
    /// Until the lease is granted for the first time: deny the account's writes to these resources, or
    /// allow what the mark on the object allows. Writes of others are never refused
    #[arg(long, value_enum, default_value_t = Missing::Allow)]
    without_lease: Missing,
    /// The namespace of the floor, as `serve --kube-floors` says it: no account whose writes are judged
    /// may write Leases there
    #[arg(long, value_name = "NAMESPACE", default_value = FLOORS)]
    floors: String,
    /// Count only marks of this Ringfence cluster, as `cluster status` prints its id, so that an object
    /// copied from elsewhere, with a mark, locks no client out [default: all marks count]
    #[arg(long, value_name = "ID")]
    cluster_id: Option<String>,
    /// Print policies that change no write, for Kubernetes 1.30 to 1.35: the client writes the mark
    /// itself, and a write of another account that drops or lowers it is refused. With the carrier
    /// sequence alone [default: needs Kubernetes 1.36]
    #[arg(long)]
    without_mutation: bool,
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
        let wish = FencingSpec {
            without_lease,
            floors: self.floors,
            cluster: self.cluster_id,
            mutation: !self.without_mutation,
            keeper: !self.without_keeper,
            ..self.guarded.wish(self.resources)
        };
        output::raw(fencing(wish)?.manifests().as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}
