//! How much of what is set aside a follower gives to the entries of one term while it has no room.

/// A term takes at most one so-many-th of a segment of the reserve; in bytes as they lie on the disk.
pub(crate) const fn share_of_a_term(segment_bytes: u64) -> u64 {
    segment_bytes / 2
}

/// What is written together takes at least a block of the log, and begins one; in bytes.
const BLOCK: u64 = 4096;

/// What entries of so many bytes take on the disk if they are written together.
pub(crate) fn on_disk(bytes: u64) -> u64 {
    (bytes + BLOCK / 8).next_multiple_of(BLOCK)
}

/// What the newest term has taken of the reserve.
///
/// A log without room refuses entries, and yet a new leader's first ones have to be committed, or
/// no client could even read: at the first sight of a full disk the cluster would stand still. So a
/// follower lets a little through in every term: what was in flight when the disk became full, the
/// first entries of the term, and changes of the members. With the least segment, of 64 KiB, that is
/// 32 KiB. Leaders without room propose nothing else.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    term: u64,
    used: u64,
}

impl Reserve {
    /// Takes room for entries of so many bytes from what is left for a term; false if it has had
    /// its part. Entries of an older term pass: they are refused before they are written.
    pub(super) fn take(&mut self, term: u64, bytes: u64, segment_bytes: u64) -> bool {
        if term < self.term {
            return true;
        }
        let used = if term == self.term { self.used } else { 0 };
        let used = used.saturating_add(on_disk(bytes));
        if used > share_of_a_term(segment_bytes) {
            return false;
        }
        *self = Self { term, used };
        true
    }

    /// There is room again: the next time begins again.
    pub(super) fn refill(&mut self) {
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_term_gets_a_part_of_a_segment_and_no_more() {
        let segment = 64 * 1024;
        let mut reserve = Reserve::default();
        let taken = (0..100).filter(|_| reserve.take(3, 10, segment)).count();
        assert_eq!(taken, 8, "half a segment in blocks");
        assert!(!reserve.take(4, segment, segment), "too much for any term");
        assert!(reserve.take(4, 20_000, segment));
        assert!(!reserve.take(4, 20_000, segment));
        assert!(reserve.take(3, 20_000, segment), "nothing is written of it");
        reserve.refill();
        assert!(reserve.take(4, 20_000, segment));
    }
}
