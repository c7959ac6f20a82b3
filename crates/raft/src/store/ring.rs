//! The newest entries of the log in memory, so that replication and apply do not read the disk.

use std::collections::VecDeque;

use crate::types::codec::payload_to_bytes;
use crate::types::type_config::{Entry, LogId};

/// How many bytes of entries stay in memory, besides those that the disk does not have yet.
///
/// Only what is younger than a follower's lag is ever asked for, and that is milliseconds; a
/// quarter of a second of the fastest log there is fits. A reader that lags more is served from the
/// disk, which mostly means from the system's own cache.
pub(crate) const RING_BYTES: usize = 8 << 20;
/// What an entry costs besides its payload: itself, and what holds the payload.
pub(crate) const ENTRY_BYTES: u64 = 128;

/// A window on the end of the log, without gaps.
#[derive(Debug)]
pub(crate) struct Ring {
    entries: VecDeque<Entry>,
    bytes: usize,
    capacity: usize,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            capacity,
        }
    }

    /// Puts the next entry in. Entries up to `flushed` may go to make room: those behind it may
    /// not be readable from the disk yet.
    pub(crate) fn push(&mut self, entry: Entry, flushed: Option<u64>) {
        self.bytes += cost(&entry);
        self.entries.push_back(entry);
        while self.bytes > self.capacity {
            let Some(oldest) = self.entries.front() else {
                return;
            };
            if flushed.is_none_or(|flushed| oldest.log_id.index > flushed) {
                return;
            }
            self.pop_front();
        }
    }

    /// The index of the oldest entry.
    pub(crate) fn first(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.log_id.index)
    }

    pub(crate) fn last(&self) -> Option<LogId> {
        self.entries.back().map(|entry| entry.log_id)
    }

    /// Entries from `from` on, below `end`, if the ring holds `from`.
    pub(crate) fn range(&self, from: u64, end: u64) -> Option<impl Iterator<Item = &Entry>> {
        let first = self.first()?;
        let start = usize::try_from(from.checked_sub(first)?).ok()?;
        if start >= self.entries.len() {
            return None;
        }
        let count = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
        let stop = start.saturating_add(count).min(self.entries.len());
        Some(self.entries.range(start..stop.max(start)))
    }

    /// Drops entries behind `last`.
    pub(crate) fn truncate_after(&mut self, last: Option<u64>) {
        while let Some(newest) = self.entries.back() {
            if last.is_some_and(|last| newest.log_id.index <= last) {
                return;
            }
            self.bytes -= cost(newest);
            drop(self.entries.pop_back());
        }
    }

    /// Drops entries up to `index`.
    pub(crate) fn purge(&mut self, index: u64) {
        while self.first().is_some_and(|first| first <= index) {
            self.pop_front();
        }
    }

    fn pop_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= cost(&entry);
        }
    }
}

fn cost(entry: &Entry) -> usize {
    payload_to_bytes(&entry.payload).len() + ENTRY_BYTES as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::type_config::{Payload, log_id};

    fn entry(index: u64) -> Entry {
        Entry {
            log_id: log_id(1, index),
            payload: Payload::Blank,
        }
    }

    fn indices(ring: &Ring, from: u64, end: u64) -> Option<Vec<u64>> {
        ring.range(from, end)
            .map(|entries| entries.map(|entry| entry.log_id.index).collect())
    }

    #[test]
    fn only_flushed_entries_make_room() {
        let mut ring = Ring::new(3 * (ENTRY_BYTES as usize + 1));
        for index in 1..=5 {
            ring.push(entry(index), Some(1));
        }
        assert_eq!(ring.first(), Some(2), "entry 2 may not be on disk yet");
        ring.push(entry(6), Some(5));
        assert_eq!(ring.first(), Some(4));
    }

    #[test]
    fn ranges_are_cut_at_both_ends() {
        let mut ring = Ring::new(RING_BYTES);
        for index in 5..=9 {
            ring.push(entry(index), None);
        }
        assert_eq!(indices(&ring, 4, 7), None);
        assert_eq!(indices(&ring, 5, 7), Some(vec![5, 6]));
        assert_eq!(indices(&ring, 8, 99), Some(vec![8, 9]));
        assert_eq!(indices(&ring, 10, 99), None);
        ring.truncate_after(Some(7));
        ring.purge(5);
        assert_eq!(indices(&ring, 6, 99), Some(vec![6, 7]));
        ring.truncate_after(None);
        assert_eq!((ring.first(), ring.bytes), (None, 0));
    }
}
