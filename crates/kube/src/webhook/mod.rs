//! The webhook's part that knows Kubernetes: what a review asks, and how it is answered.
//!
//! ```text
//!  API server ── AdmissionReview ──▶ Review ── fence, leases ──▶ the code that asks the cluster
//!             ◀── allowed, or 403 ── Answer ◀─── Standing ──────┘
//! ```
//!
//! One rule judges writes under many leases. An object may name its lease, by the label or the
//! annotation [`LEASE`]; then a fence of that lease is demanded. An object that names none, a Scale
//! or an Eviction for example, takes a fence of any lease. Either way the grant has to be in force
//! when the cluster is asked.
//!
//! That was true a moment before the write is stored, so it is no guard; the mark is. What it adds:
//! forged fences and ended grants are found out, and nothing waits for a mirrored Lease to arrive.

mod manifest;
mod review;

pub use manifest::{ACCOUNTS_MAX, FailurePolicy, Hook, InvalidHook, UnknownFailurePolicy, Where};
pub use review::{Answer, InvalidReview, Offer, Review, Standing, judge};

/// The label, and the annotation, that names the lease of an object. The label is the name of a
/// mirrored Lease in the object's namespace; the annotation is a lease's whole name.
pub const LEASE: &str = "ringfence.io/lease";

/// How long the API server waits for an answer, in seconds.
pub const TIMEOUT_SECONDS: u32 = 2;
