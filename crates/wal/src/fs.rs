//! The few file system operations that the log needs, so that tests can crash them.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file system. Names are durable only after [`Fs::sync_dir`], content only after
/// [`FsFile::sync_data`].
pub trait Fs: Send + Sync {
    /// Creates a file that does not exist yet.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FsFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn FsFile>>;
    /// Renames a file; atomic, but durable only after [`Fs::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; durable only after [`Fs::sync_dir`].
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Returns the names of the files in `dir`, in any order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes the names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes a directory and what lies above it, if it is not there.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// Removes a directory with everything in it, if it is there.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Returns true if `dir` is a directory.
    fn has_dir(&self, dir: &Path) -> bool;
    /// The least that the system or the device under `dir` rewrites when a byte of a file there
    /// changes, in bytes; a power of two. What lies within it may be lost together.
    fn block_bytes(&self, dir: &Path) -> u64 {
        let _ = dir;
        4096
    }
    /// Takes the lock file at `path`, creating it if need be, without waiting.
    fn lock(&self, path: &Path) -> io::Result<FsLock>;
}

/// The outcome of trying to take a lock.
pub enum FsLock {
    /// Ours until the value is dropped or the process ends.
    Held(Box<dyn Send + Sync>),
    /// Another process's; the text says whose, as far as known.
    Busy(String),
}

impl fmt::Debug for FsLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(_) => f.write_str("Held"),
            Self::Busy(holder) => f.debug_tuple("Busy").field(holder).finish(),
        }
    }
}

/// An open file of the log, used by one writing and one reading thread.
pub trait FsFile: Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Returns true if the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `buffer` from `offset`; an error if the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`; not durable yet.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes content and length durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Shortens or lengthens the file.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Drops clean pages from the cache, so that the next read shows what the medium holds.
    ///
    /// After a failed sync the kernel may keep pages that never reached the medium and call them
    /// clean; a process that starts again must not believe them.
    fn drop_cache(&self) -> io::Result<()>;
}
