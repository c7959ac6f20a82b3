//! Stale writes, refused by a real API server with the policies that `ringfence kube policy` prints.
#![allow(clippy::unwrap_used)]

mod policies;
mod stand;
mod table;
mod verdict;
mod writer;
