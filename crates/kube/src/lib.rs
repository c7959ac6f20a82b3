//! The mirror: leases as objects of Kubernetes, for `kubectl get lease` and for policies that fence
//! by them.
//!
//! ```text
//!  lease k8s/demo/leader              Lease leader in namespace demo
//!    held by worker-1, token 7   ──▶    spec.holderIdentity: worker-1
//!    until it is not kept alive         ringfence.io/token: "7"
//! ```
//!
//! It shows and never decides: no client acquires a lease by writing an object, and what is written
//! on one by hand is undone. A lease is granted without asking Kubernetes, however long the API
//! server takes.
//!
//! # What is written
//!
//! - `spec.holderIdentity` is the holder's identity, empty when no client holds the lease;
//!   `leaseDurationSeconds` the TTL, rounded up, or longer where more leases are held than can be renewed in time ([`limits::RENEWAL_PACE_MIN`]); `acquireTime` the grant; `renewTime` the last
//!   keep-alive, written at most every half TTL; `leaseTransitions` how often the holder changed, as
//!   far as the mirror saw it.
//! - The annotation [`TOKEN`] is the greatest token ever granted for the lease. It stays when the
//!   grant has ended.
//! - A floor, where there is one: an object of the namespace [`FLOORS`] that the manifests of a fenced
//!   lease bring along ([`policy`]) and on which nothing but the token is shown. Who may write Leases
//!   in the lease's own namespace has no part in it. The mirror never makes one.
//! - The annotations [`POSITION`] and [`CLUSTER`] say when, in which cluster, that was true.
//!
//! # Why an older state never replaces a newer one
//!
//! An object that stands at a later position than what is known here is left alone, and every write
//! names the version of the object that was judged. So a mirror whose node was stopped, deposed and
//! woken loses its write, whatever it believed.
//!
//! Objects without the mirror's label are not the mirror's, and the namespaces in
//! [`RESERVED_NAMESPACES`] are out of reach.

mod attempt;
pub mod canary;
mod clock;
mod connect;
mod decision;
mod dirty_set;
mod events;
#[cfg(feature = "fenced")]
pub mod fenced;
mod lease_object;
pub mod limits;
mod metrics;
mod mirror;
mod name;
mod outcome;
mod pace;
pub mod pods;
pub mod policy;
mod position;
mod source;
mod sync_error;
mod watching;
pub mod webhook;
mod work_queue;

pub use kube::{Client, Error};

pub use connect::{ConnectError, connect};
pub use decision::{Decision, Inputs, LeaseSnapshot, Refusal, Why, decide};
pub use events::UNDONE;
pub use lease_object::{
    CLUSTER, LeaseObject, MANAGED_BY, MANAGER, Observed, POSITION, Stamp, TOKEN, Version,
};
pub use metrics::Metrics;
pub use mirror::Mirror;
pub use name::{
    FLOORS, InvalidNaming, InvalidObjectName, Mapping, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, Naming,
    ObjectName, PREFIX, RESERVED_NAMESPACES, floor_of,
};
pub use pace::Stretch;
pub use position::{InvalidPosition, Position};
pub use source::{Source, look};

/// The guide's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../client/FROM-CLIENT-GO.md")]
struct FromClientGo;
