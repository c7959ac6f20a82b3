//! What one principal can take of what all share: names that no session uses any more, names that it
//! blocks, Lease objects, notes of lost terms, and places in the list of acts.
#![allow(clippy::unwrap_used)]

mod acts;
mod bench;
mod blocked;
mod levels;
mod names;
mod objects;
mod twice;
mod unproven;
#[path = "../world/mod.rs"]
mod world;
