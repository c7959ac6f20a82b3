//! Lease objects: who renews and releases, what an old version does, and how a process that slept
//! through the end of its term is kept from a second one inside the first.
#![allow(clippy::unwrap_used)]

mod bench;
mod durations;
mod owing;
mod pods;
mod rehearsals;
mod terms;
mod versions;
#[allow(dead_code)] // Other tests use more of it.
#[path = "../world/mod.rs"]
mod world;
