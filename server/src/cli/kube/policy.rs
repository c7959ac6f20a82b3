//! `ringfence kube policy`: the manifests by which an API server refuses stale writes.

use std::process::ExitCode;

use ringfence_kube::PREFIX;
use ringfence_kube::policy::{Carrier, Fencing, Resource, ServiceAccount, Wish, WithoutLease};

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
    /// The mirrored Lease whose holder may write
    #[arg(long, value_name = "NAMESPACE/NAME")]
    lease: String,
    /// What the lease guards, with all subresources: configmaps, deployments.apps; may be repeated
    #[arg(long = "resource", value_name = "PLURAL[.GROUP]", required = true)]
    resources: Vec<Resource>,
    /// How a write carries its fence: impersonate (in userInfo.extra: every kind of write),
    /// field-manager (no deletions, no server-side apply), sequence (in an annotation: no
    /// deletions, no scale)
    #[arg(long, value_name = "CARRIER")]
    carrier: Carrier,
    /// The service account whose writes are judged [default: the one that is called like the Lease]
    #[arg(long, value_name = "NAMESPACE/NAME")]
    service_account: Option<ServiceAccount>,
    /// Where the guarded objects are; may be repeated [default: the Lease's namespace]
    #[arg(long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// What leases are called that are mirrored, as `serve --kube-prefix` says it
    #[arg(long, value_name = "PREFIX", default_value = PREFIX)]
    kube_prefix: String,
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
        let wish = Wish {
            lease: self.lease,
            prefix: self.kube_prefix,
            resources: self.resources,
            namespaces: self.namespaces,
            account: self.service_account,
            carrier: self.carrier,
            without_lease: match self.without_lease {
                Missing::Deny => WithoutLease::Deny,
                Missing::Allow => WithoutLease::Allow,
            },
            keeper: !self.without_keeper,
        };
        let fencing = Fencing::new(wish).map_err(|why| Failure::usage(why.to_string()))?;
        output::raw(fencing.manifests().as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}
