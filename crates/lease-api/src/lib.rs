//! The Lease endpoint's pure half: what unmodified clients of `coordination.k8s.io/v1` send becomes
//! leases and options, and leases become what these clients read. Nothing here opens a socket, reads
//! a clock or a state, or decides who holds a lease. No input panics: what makes no sense is a
//! [`Failure`].
//!
//! ```text
//!  method, path, query ─▶ route ─▶ options        Accept ─▶ accept
//!  body ─▶ body (JSON, protobuf), or patch on the present lease ─▶ Lease, warnings
//!  lease, change ─▶ shown or table   list ─▶ list   documents ─▶ discovery
//!  Failure (status) ─▶ the body of every refusal
//! ```
//!
//! A write goes so: the caller reads the present lease, as it was shown. [`body::lease`] or
//! [`patch::Patch`] gives the lease that is wanted. The caller compares its version and its `uid`
//! with those of the present one (409), then calls [`metadata::check_own`], keeps
//! [`metadata::Stored`], and proposes what is left: the spec, which is unchanged if it is equal.

pub mod accept;
pub mod body;
mod cause;
pub mod discovery;
mod fields;
pub mod lease;
pub mod list;
pub mod metadata;
mod names;
mod openapi;
pub mod options;
pub mod patch;
mod query;
pub mod route;
pub mod selector;
pub mod shown;
pub mod status;
mod strategic;
pub mod table;
pub mod time;
mod valid;
mod wire;

pub use lease::Lease;
pub use status::Failure;
pub use valid::NAME_BYTES_MAX;
