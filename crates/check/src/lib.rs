//! What clients saw, written down, and checkers that say whether a correct service could have
//! shown it.
//!
//! - [`history`] is the file format: JSON lines that a recorder appends while it runs.
//!
//! Nothing here talks to a cluster, reads a clock, or draws a random number.

pub mod history;
