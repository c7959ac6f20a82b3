//! What the index asks of the machine. Tests make it fail.

use std::io;
use std::path::Path;

/// The machine under the index.
pub(crate) trait Ground: Send + Sync {
    /// Bytes that may still be written where `path` lies.
    fn room(&self, path: &Path) -> io::Result<u64>;

    /// Asked before the disk is probed, and before the index is opened, written or flushed.
    fn may(&self, _: Act) -> io::Result<()> {
        Ok(())
    }
}

/// What is done to the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Probe,
    Open,
    Write,
    Flush,
}

/// The machine as it is.
pub(crate) struct Machine;

impl Ground for Machine {
    fn room(&self, path: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(path)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}
