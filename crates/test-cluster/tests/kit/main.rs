//! The test cluster, as services see it.
#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with a line number"
)]

mod example;
mod faults;
mod mistakes;
mod readme;
mod repeats;
mod steps;
