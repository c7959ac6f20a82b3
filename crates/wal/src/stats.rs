//! Figures about the work done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Figures since the log was opened, and the size of what is live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Entries made durable.
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
}

impl Counters {
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

    /// Reads every counter.
    pub(crate) fn read(&self, live_bytes: u64) -> WalStats {
        WalStats {
            entries_appended: self.entries_appended.load(Ordering::Relaxed),
            bytes_appended: self.bytes_appended.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            last_sync_micros: self.last_sync_micros.load(Ordering::Relaxed),
            max_sync_micros: self.max_sync_micros.load(Ordering::Relaxed),
            live_segments: self.live_segments.load(Ordering::Relaxed),
            live_bytes,
        }
    }
}
