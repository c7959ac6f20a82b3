//! Clients that mean ill, or are broken: they read nothing, write nothing, write garbage, repeat the
//! largest message, open streams and leave. A cluster of real processes bears them: its memory has
//! an end, its well-behaved clients are kept alive in time, its leader stays.
#![allow(clippy::unwrap_used)]

mod attackers;
mod crowds;
mod holder;
mod hunt;
mod invented;
mod invented_losses;
mod keep_alives;
mod many_leases;
mod measure;
mod no_window;
mod raw;
mod refused;
mod sockets;
