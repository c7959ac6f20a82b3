//! Lines for people on standard error.

use std::io::{self, Write as _};

/// Writes one line, apart from what stands before and behind it.
pub fn tell(line: &str) {
    // Nothing can be done about a closed stderr, and nothing depends on it.
    io::stderr()
        .write_all(format!("\n{line}\n").as_bytes())
        .ok();
}
