//! The engine alone: clusters that form, lose leaders and disks, and do so the same way each time.
#![allow(clippy::unwrap_used)]

mod harness;
mod lives;
mod remains;
mod repeats;
mod storm;
