//! Both ends of a handshake over loopback, with certificates of every kind.

#![allow(clippy::unwrap_used)]

mod both;
mod certificates;
#[cfg(feature = "cluster-secret")]
mod cluster_secret;
mod left_alone;
mod peer_names;
mod plain;
mod ports;
mod refused_files;
mod rotation;
mod support;
