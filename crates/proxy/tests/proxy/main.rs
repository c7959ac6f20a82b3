//! The proxy between real callers and a real service, over sockets.
#![allow(clippy::unwrap_used)]

mod bodies;
mod callers;
mod connections;
mod ends;
mod order;
mod outcomes;
mod passing;
mod stage;
