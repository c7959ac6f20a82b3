//! Figures about the work done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Figures since the log was opened, and the size of what is live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Number of entries made durable.
    pub entries_appended: u64,
    /// Bytes written and made durable, with headers and padding.
    pub bytes_appended: u64,
    /// Batches written, each with one sync.
    pub syncs: u64,
    /// How long the last sync took, in microseconds.
    pub last_sync_micros: u64,
    /// How long the slowest sync took, in microseconds.
    pub max_sync_micros: u64,
    /// Segment files that hold records: those that are full and the active one.
    pub live_segments: u64,
    /// Bytes of the records of live entries.
    pub live_bytes: u64,
    /// Segments that are prepared ahead.
    pub spare_segments: u64,
    /// How often a segment could not be prepared ahead.
    pub spare_failures: u64,
    /// Whether the file system has no room for another segment and at most [`RESERVE_SEGMENTS`]
    /// are left: appends should pause until this is false again. The rest is for votes, purges and
    /// what is in flight.
    pub no_room: bool,
}

/// How many prepared segments are kept for votes, purges and what is in flight when there is no
/// room for more.
pub const RESERVE_SEGMENTS: u64 = 1;

/// Figures about the segments that are prepared ahead.
#[derive(Debug, Default)]
pub(crate) struct SpareCounters {
    ready: AtomicU64,
    failures: AtomicU64,
    /// The last preparation failed for lack of space.
    full: AtomicBool,
}

impl SpareCounters {
    /// Records how many are ready.
    pub(crate) fn ready(&self, count: usize) {
        self.ready.store(count as u64, Ordering::Relaxed);
    }

    /// Records a preparation that failed; `full` if for lack of space.
    pub(crate) fn failed(&self, full: bool) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.full.store(full, Ordering::Relaxed);
    }

    /// Records a preparation that succeeded.
    pub(crate) fn prepared(&self) {
        self.full.store(false, Ordering::Relaxed);
    }

    fn no_room(&self) -> bool {
        let ready = self.ready.load(Ordering::Relaxed);
        self.full.load(Ordering::Relaxed) && ready <= RESERVE_SEGMENTS
    }
}

/// The counters behind [`WalStats`], written by the writer only.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    entries_appended: AtomicU64,
    bytes_appended: AtomicU64,
    syncs: AtomicU64,
    last_sync_micros: AtomicU64,
    max_sync_micros: AtomicU64,
    live_segments: AtomicU64,
    /// Bytes behind the last batch in the active segment.
    left: AtomicU64,
    spares: Arc<SpareCounters>,
}

impl Counters {
    pub(crate) fn new(spares: Arc<SpareCounters>) -> Self {
        Self {
            spares,
            ..Self::default()
        }
    }

    pub(crate) fn no_room(&self) -> bool {
        self.spares.no_room()
    }

    /// Records how many bytes are left in the active segment.
    pub(crate) fn left(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that can be appended before a new segment must be made, the reserve not counted.
    pub(crate) fn prepared_bytes(&self, segment_bytes: u64) -> u64 {
        let ready = self.spares.ready.load(Ordering::Relaxed);
        let spare = ready.saturating_sub(RESERVE_SEGMENTS);
        self.left.load(Ordering::Relaxed) + spare * segment_bytes
    }

    pub(crate) fn bytes_appended(&self) -> u64 {
        self.bytes_appended.load(Ordering::Relaxed)
    }

    /// Records one durable batch.
    pub(crate) fn synced(&self, bytes: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.bytes_appended.fetch_add(bytes, Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.last_sync_micros.store(micros, Ordering::Relaxed);
        self.max_sync_micros.fetch_max(micros, Ordering::Relaxed);
    }

    /// Records entries that are durable.
    pub(crate) fn appended(&self, entries: u64) {
        self.entries_appended.fetch_add(entries, Ordering::Relaxed);
    }

    /// Records how many segments hold records.
    pub(crate) fn live_segments(&self, count: u64) {
        self.live_segments.store(count, Ordering::Relaxed);
    }

    /// Reads all counters, one by one: a sum of two may be of different moments.
    pub(crate) fn read(&self, live_bytes: u64) -> WalStats {
        WalStats {
            entries_appended: self.entries_appended.load(Ordering::Relaxed),
            bytes_appended: self.bytes_appended(),
            syncs: self.syncs.load(Ordering::Relaxed),
            last_sync_micros: self.last_sync_micros.load(Ordering::Relaxed),
            max_sync_micros: self.max_sync_micros.load(Ordering::Relaxed),
            live_segments: self.live_segments.load(Ordering::Relaxed),
            live_bytes,
            spare_segments: self.spares.ready.load(Ordering::Relaxed),
            spare_failures: self.spares.failures.load(Ordering::Relaxed),
            no_room: self.no_room(),
        }
    }
}
