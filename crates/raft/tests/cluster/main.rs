//! Nodes in one process, on loopback, each with a directory of its own.
#![allow(clippy::unwrap_used)]

mod harness;
mod single;
mod three;
