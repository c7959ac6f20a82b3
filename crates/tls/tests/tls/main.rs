//! Both ends of a handshake over loopback, with certificates of every kind.

#![allow(clippy::unwrap_used)]

mod certificates;
mod peer_names;
mod plain;
mod ports;
mod refused_files;
mod rotation;
mod support;
