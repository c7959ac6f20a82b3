//! What tests put in the place of the real thing.

use std::fmt;
use std::sync::Arc;

use ringfence_wal::{Fs, RealFs};

use crate::clock;

/// The parts of the outside world that a test may replace.
#[derive(Clone)]
pub struct Hooks {
    /// Where the log keeps its files.
    pub log_files: Arc<dyn Fs>,
    /// The wall clock that is asked whether a term may raise the tokens, in milliseconds since
    /// 1970.
    pub wall_millis: fn() -> u64,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            log_files: Arc::new(RealFs),
            wall_millis: || clock::wall().0,
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}
