//! Which lease, and whose writes: what `policy` and `canary` receive in the same words.

use ringfence_kube::PREFIX;
use ringfence_kube::policy::{Carrier, Fencing, FencingSpec, Resource, ServiceAccount};

use crate::cli::Failure;

/// See the module.
#[derive(clap::Args, Debug)]
pub(super) struct Guarded {
    /// The mirrored Lease whose holder may write
    #[arg(long, value_name = "NAMESPACE/NAME")]
    lease: String,
    /// How a write carries its fence: impersonate (in userInfo.extra: every kind of write),
    /// field-manager (no deletions), sequence (in an annotation: no deletions, no scale)
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
}

impl Guarded {
    /// What is wished for, as far as these flags say it.
    pub(super) fn wish(self, resources: Vec<Resource>) -> FencingSpec {
        FencingSpec {
            prefix: self.kube_prefix,
            resources,
            namespaces: self.namespaces,
            account: self.service_account,
            ..FencingSpec::new(self.lease, self.carrier)
        }
    }
}

/// What is to be fenced, checked.
///
/// # Errors
/// What was offered, and what is allowed.
pub(super) fn fencing(wish: FencingSpec) -> Result<Fencing, Failure> {
    Fencing::new(wish).map_err(|why| Failure::usage(why.to_string()))
}
