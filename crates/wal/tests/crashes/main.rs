//! Crashes, at every boundary and of every kind, on the simulated file system.
#![allow(clippy::unwrap_used)]

mod at_every_change;
mod faults;
mod flips;
mod golden;
mod group_commit;
mod model;
mod scenario;
mod stepped;
