//! Stale writes, refused by a real API server with the policies that `ringfence kube policy` prints.
#![allow(clippy::unwrap_used)]

mod account;
mod behind;
mod bystanders;
mod canary;
mod edges;
mod frozen;
mod hands;
mod layer;
mod lowering;
mod once;
mod paused;
mod policies;
mod process;
mod rights;
mod stamped;
mod stand;
mod storm;
mod subresources;
mod table;
mod verdict;
mod webhook;
mod without_mutation;
mod writer;
