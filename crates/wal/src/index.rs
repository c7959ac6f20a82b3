//! Where each live entry stands on disk.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::segment::Segment;

/// The place of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loc {
    /// The segment's sequence number.
    pub(crate) segment: u64,
    /// The byte in the segment at which the record begins.
    pub(crate) offset: u32,
    /// Length of the whole record in bytes.
    pub(crate) len: u32,
}

/// A change of the index that waits for its batch to be durable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IndexOp {
    /// The entry with this index was appended.
    Push(u64, Loc),
    /// Entries from this index on are gone.
    TruncateFrom(u64),
    /// Entries up to this index are gone.
    PurgeUpto(u64),
}

/// The places of all live entries, and the segments that hold them.
#[derive(Default)]
pub(crate) struct Index {
    /// The index of the first live entry; meaningless while there is none.
    first: u64,
    locs: VecDeque<Loc>,
    live_bytes: u64,
    segments: BTreeMap<u64, Segment>,
}

impl Index {
    /// Applies one change, in the order in which records were written.
    pub(crate) fn apply(&mut self, op: IndexOp) {
        match op {
            IndexOp::Push(index, loc) => {
                if self.locs.is_empty() {
                    self.first = index;
                }
                self.live_bytes += u64::from(loc.len);
                self.locs.push_back(loc);
            }
            IndexOp::TruncateFrom(index) => {
                let keep = index.saturating_sub(self.first);
                while self.locs.len() as u64 > keep {
                    self.live_bytes -= self.locs.pop_back().map_or(0, |loc| u64::from(loc.len));
                }
            }
            IndexOp::PurgeUpto(index) => {
                while self.first <= index && !self.locs.is_empty() {
                    self.live_bytes -= self.locs.pop_front().map_or(0, |loc| u64::from(loc.len));
                    self.first += 1;
                }
            }
        }
    }

    /// Adds a segment that entries may stand in.
    pub(crate) fn add_segment(&mut self, segment: Segment) {
        self.segments.insert(segment.sequence, segment);
    }

    /// Forgets a segment that no live entry stands in.
    pub(crate) fn remove_segment(&mut self, sequence: u64) {
        self.segments.remove(&sequence);
    }

    /// Bytes of all live records.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Returns the first range of the wanted entries that one read can fetch: neighbours in one
    /// segment, at most `max_bytes` of records, but at least one if any of them is live.
    pub(crate) fn read_range(&self, wanted: Range<u64>, max_bytes: u64) -> Option<ReadRange> {
        let from = wanted.start.max(self.first);
        let until = wanted.end.min(self.first + self.locs.len() as u64);
        if from >= until {
            return None;
        }
        let at = (from - self.first) as usize;
        let end = (until - self.first) as usize;
        let head = self.locs[at];
        let mut bytes = 0;
        let locs: Vec<Loc> = self
            .locs
            .range(at..end)
            .take_while(|loc| {
                let first = bytes == 0;
                bytes += u64::from(loc.len);
                let ahead = loc.segment == head.segment && loc.offset >= head.offset;
                first || (ahead && bytes <= max_bytes)
            })
            .copied()
            .collect();
        let segment = self.segments.get(&head.segment)?.clone();
        Some(ReadRange {
            first: from,
            segment,
            locs,
        })
    }
}

/// Entries that one read can fetch.
pub(crate) struct ReadRange {
    /// The index of the first.
    pub(crate) first: u64,
    pub(crate) segment: Segment,
    /// Their places, ascending; never empty.
    pub(crate) locs: Vec<Loc>,
}
