//! How a log is opened, and its limits.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use crate::{OpenError, WalError};

/// The longest payload of an entry, in bytes. A small `segment_bytes` may set a lower limit,
/// since an entry never spans two segments: see [`crate::Wal::entry_limit`].
pub const MAX_ENTRY_BYTES: u64 = 16 * 1024 * 1024;
/// The longest vote and the longest committed mark, in bytes: both are repeated at the start of
/// every segment.
pub const MAX_MARK_BYTES: usize = 1024;
/// The longest identity header, in bytes: it must fit in the one sector of a segment's header.
pub const MAX_HEADER_BYTES: usize = 256;
/// The smallest segment, in bytes.
pub const MIN_SEGMENT_BYTES: u64 = 16 * 1024;
/// The largest segment, in bytes: a start reads one whole segment at a time into memory.
pub const MAX_SEGMENT_BYTES: u64 = 1024 * 1024 * 1024;
/// The greatest number of segments prepared ahead.
pub const MAX_SPARE_SEGMENTS: usize = 16;

/// Called once when a write or sync has failed for good.
pub type OnFatal = Box<dyn Fn(&WalError) + Send + Sync>;

/// Called when preparing a segment ahead has failed, or has succeeded again after that.
pub type OnSpare = Box<dyn Fn(Option<&WalError>) + Send + Sync>;

/// How a log is opened. Begin with [`Options::new`] and change fields.
pub struct Options {
    /// Bytes of one segment file: [`MIN_SEGMENT_BYTES`] to [`MAX_SEGMENT_BYTES`], a multiple of
    /// 512. Default 64 MiB. May differ from what an existing log was written with.
    pub segment_bytes: u64,
    /// Segments prepared ahead, 1 to [`MAX_SPARE_SEGMENTS`]. Default 2.
    pub spare_segments: usize,
    /// Whom this log belongs to, opaque, at most [`MAX_HEADER_BYTES`]. Written in every segment
    /// and compared when the log is opened.
    pub header: Vec<u8>,
    /// Whether the log must be there already. A directory without a log is then refused as
    /// [`OpenError::Missing`] instead of being given a new one: a member that goes on with an
    /// empty log would vote against what it has promised. Default false.
    pub existing: bool,
    /// The most bytes of payloads that [`crate::Recovered::entries`] holds: the newest entries as
    /// far as they fit. Default all.
    pub recover_bytes: u64,
    /// Called, from the thread that prepares segments, when one could not be prepared ahead, and
    /// with `None` when one could again. The log goes on as long as it has segments; without room
    /// for the next one it holds calls up until there is. Default nothing.
    pub on_spare: OnSpare,
    /// Called when a write or sync has failed, before the calls in flight learn of it. The
    /// default prints the error to standard error and aborts the process, because a caller that
    /// goes on after a lost write would answer for data that is not there.
    pub on_fatal: OnFatal,
    /// Mixed into the checksums of the segments that this opening creates, so that bytes of
    /// another log, or bytes chosen by a client, never pass for records. Default random; set it
    /// only where a run must repeat to the byte.
    pub salt: u64,
}

impl Options {
    /// Returns the defaults for a log that belongs to `header`.
    #[must_use]
    pub fn new(header: impl Into<Vec<u8>>) -> Self {
        Self {
            segment_bytes: 64 * 1024 * 1024,
            spare_segments: 2,
            header: header.into(),
            existing: false,
            recover_bytes: u64::MAX,
            on_spare: Box::new(|_| {}),
            on_fatal: Box::new(abort_process),
            // The standard library's hasher is the one source of randomness that needs no crate.
            salt: RandomState::new().hash_one("wal"),
        }
    }

    /// Rejects an option out of its range, before anything is opened.
    pub(crate) fn validate(&self) -> Result<(), OpenError> {
        let range = MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES;
        if !range.contains(&self.segment_bytes) || !self.segment_bytes.is_multiple_of(512) {
            return Err(OpenError::segment_bytes(self.segment_bytes));
        }
        if !(1..=MAX_SPARE_SEGMENTS).contains(&self.spare_segments) {
            return Err(OpenError::spare_segments(self.spare_segments));
        }
        if self.header.len() > MAX_HEADER_BYTES {
            return Err(OpenError::header(self.header.len()));
        }
        Ok(())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("segment_bytes", &self.segment_bytes)
            .field("spare_segments", &self.spare_segments)
            .field("header", &self.header)
            .field("existing", &self.existing)
            .finish_non_exhaustive()
    }
}

fn abort_process(error: &WalError) {
    eprintln!("fatal: {error}");
    std::process::abort();
}
