//! What was appended and is not known to be committed, in entries and bytes.

use std::collections::VecDeque;

/// Counts entries from their appending to their commitment, append by append: one that is committed
/// in part still counts whole.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    appends: VecDeque<Append>,
    entries: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Append {
    last: u64,
    entries: u64,
    bytes: u64,
}

impl Uncommitted {
    /// Notes that `entries` of `bytes` together were appended, up to index `last`.
    pub(super) fn appended(&mut self, last: u64, entries: u64, bytes: u64) {
        self.entries += entries;
        self.bytes += bytes;
        self.appends.push_back(Append {
            last,
            entries,
            bytes,
        });
    }

    /// Notes that everything up to `index` is committed.
    pub(super) fn committed(&mut self, index: u64) {
        while let Some(append) = self.appends.pop_front_if(|append| append.last <= index) {
            self.entries -= append.entries;
            self.bytes -= append.bytes;
        }
    }

    /// Notes that everything behind `kept` was cut off, or everything.
    pub(super) fn cut(&mut self, kept: Option<u64>) {
        while let Some(append) = self.appends.pop_back_if(|append| Some(append.last) > kept) {
            self.entries -= append.entries;
            self.bytes -= append.bytes;
            let (Some(kept), Some(lost)) = (kept, kept.map(|kept| append.last - kept)) else {
                continue;
            };
            if lost < append.entries {
                // Its bytes are not known one by one.
                self.appended(kept, append.entries - lost, append.bytes);
                return;
            }
        }
    }

    /// How many entries, and bytes of their payloads.
    pub(super) fn figures(&self) -> (u64, u64) {
        (self.entries, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_count_from_their_appending_to_their_commitment_or_their_end() {
        let mut log = Uncommitted::default();
        log.appended(3, 3, 30);
        log.appended(5, 2, 20);
        log.appended(9, 4, 40);
        assert_eq!(log.figures(), (9, 90));
        log.committed(4);
        assert_eq!(log.figures(), (6, 60), "an append counts whole");
        log.cut(Some(7));
        assert_eq!(log.figures(), (4, 60), "two of four are left");
        log.cut(Some(5));
        assert_eq!(log.figures(), (2, 20));
        log.committed(7);
        assert_eq!(log.figures(), (0, 0));
        log.appended(6, 1, 10);
        log.cut(None);
        assert_eq!(log.figures(), (0, 0));
    }
}
