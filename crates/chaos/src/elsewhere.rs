//! The run where there is no Linux: it says so, and begins nothing.

use std::io::{self, Read};
use std::path::Path;

use crate::plan::Plan;
use crate::progress::{RunError, Say};
use crate::record::Report;

/// What this machine lets a run do: nothing.
#[derive(Debug)]
pub struct Ground(());

impl Ground {
    /// Takes nothing.
    #[must_use]
    pub fn take() -> Self {
        Self(())
    }

    /// Takes nothing.
    #[must_use]
    pub fn untouched() -> Self {
        Self(())
    }
}

/// Begins nothing.
///
/// # Errors
/// [`RunError::LinuxOnly`], always.
pub fn run(_: &Plan, _: &Ground, _: &mut dyn FnMut(Say)) -> Result<Report, RunError> {
    Err(RunError::LinuxOnly)
}

/// Removes nothing, since no run has made anything.
///
/// # Errors
/// [`RunError::LinuxOnly`], always.
pub fn sweep(_: &Path, _: impl Read) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        RunError::LinuxOnly,
    ))
}
