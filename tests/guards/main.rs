//! Guards before real services, fed by real clusters: the fence in gRPC metadata from a held lease to
//! the transaction that writes, and floors that refuse who is stale or was never granted.
#![allow(clippy::unwrap_used)]

mod attaching;
mod door;
mod floors;
mod sealing;
mod support;
