//! What clients saw, written down, and checkers that say whether a correct service could have
//! shown it.
//!
//! - [`history`] is the file format: JSON lines that a recorder appends while it runs.
//! - [`blackbox`] looks at such a history and at nothing else.
//! - [`witness`] holds it against the committed log, of which [`log`] is the dump.
//!
//! Nothing here talks to a cluster, reads a clock, or draws a random number.

pub mod blackbox;
pub mod history;
mod lives;
pub mod log;
pub mod recording;
pub mod verdict;
pub mod witness;

pub use recording::{Recording, RecordingError};
pub use verdict::{Report, Rule, Verdict, Violation};
