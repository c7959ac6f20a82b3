//! A follower of floors: what it lets pass, what it makes wait, and what a bad stream does to it.
#![cfg(feature = "follow")]
#![allow(clippy::unwrap_used)]

mod clusters;
mod forged;
mod memory;
mod other_cluster;
mod planted;
mod streams;
mod suite;
mod support;
