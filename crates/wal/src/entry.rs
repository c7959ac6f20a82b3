//! What the log stores and gives back.

use bytes::Bytes;

use crate::WalError;

/// The position of an entry: the term it was proposed in and its index.
///
/// Ordered by term, then index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The term the entry was proposed in.
    pub term: u64,
    /// The index of the entry; indexes of live entries have no holes.
    pub index: u64,
}

/// One entry of the log; the payload is opaque.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Where the entry stands.
    pub id: EntryId,
    /// The content, at most [`crate::MAX_ENTRY_BYTES`].
    pub payload: Bytes,
}

/// What a log contained when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The last vote saved, if any.
    pub vote: Option<Vec<u8>>,
    /// The last committed mark recorded, if any. Its index is never above `last`.
    pub committed: Option<Vec<u8>>,
    /// The greatest entry purged, if any.
    pub purged: Option<EntryId>,
    /// The last entry, or `purged` if no entry is live.
    pub last: Option<EntryId>,
    /// The live entries up to `last`, ascending and without holes: all of them after `purged`, or
    /// the newest, as far as their payloads have [`crate::Options::recover_bytes`]. What is older
    /// can be read by [`crate::Wal::read`].
    pub entries: Vec<LogEntry>,
    /// Bytes of the records of all live entries.
    pub live_bytes: u64,
    /// Bytes that the log takes in its segments, with headers and padding, up to its end.
    pub log_bytes: u64,
    /// Bytes of a torn, never acknowledged tail that were cut. 0 after a clean stop.
    pub truncated_tail_bytes: u64,
}

/// Called once, from the writer thread, when a call is durable or will never be.
///
/// It must not block: every other caller waits behind it.
pub type Done = Box<dyn FnOnce(Result<(), WalError>) + Send>;
