//! The test cluster, as services see it.

mod example;
mod faults;
mod mistakes;
mod readme;
mod repeats;
mod steps;
