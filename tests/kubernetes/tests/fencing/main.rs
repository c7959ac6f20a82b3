//! Stale writes, refused by a real API server with the policies that `ringfence kube policy` prints.
#![allow(clippy::unwrap_used)]

mod account;
mod behind;
mod canary;
mod edges;
mod frozen;
mod hands;
mod layer;
mod once;
mod paused;
mod policies;
mod process;
mod rights;
mod stamped;
mod stand;
mod storm;
mod table;
mod verdict;
mod webhook;
mod writer;
