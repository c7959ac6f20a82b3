//! Lease objects: what the Lease endpoint keeps beside a lease, for electors that speak the API of
//! Kubernetes and know neither sessions nor tokens.
//!
//! An object is written under its version, which each change of it raises, so a write that is based
//! on an older state is refused, and so is its repeat. A write that gives the object a holder opens a
//! session for it; the session ends with that grant, and each further write of the holder is its
//! keep-alive. So the rules of leases hold for objects, and nothing here grants anything itself.

mod native;
pub(crate) mod object;
mod owing;
mod rehearsal;
mod table;
mod term;
mod write;

pub(crate) use table::Objects;
