//! `ringfence serve` as a process, driven by nothing but its protocol.
#![allow(clippy::unwrap_used, missing_docs)]

mod api;
mod calls;
mod cluster;
mod descriptors;
mod families;
mod handover;
mod headers;
mod lease_api;
mod limits;
mod members;
mod metrics;
mod notify;
mod own_files;
mod peer_tls;
mod process;
mod reach;
mod refusals;
mod rest;
mod starting;
mod stopping;
mod stream;
mod tls;
mod unit;
mod votes;
mod watching;
