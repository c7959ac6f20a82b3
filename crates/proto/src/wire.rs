//! The public protocol's messages to and from the core's types; one module per `.proto` file.
//!
//! `*_from_wire` of a request gives a [`crate::Refusal`] with the field, what was offered and what
//! is allowed: a server hands it back as it is. `*_from_wire` of what a server says gives a
//! [`crate::DecodeError`]. `*_to_wire` cannot fail.

mod access;
mod check;
mod cluster;
mod connection;
mod leases;
mod pods;
mod sessions;
mod types;

pub use access::*;
pub use cluster::*;
pub use connection::*;
pub use leases::*;
pub use pods::*;
pub use sessions::*;
pub use types::*;
