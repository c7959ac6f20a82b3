//! Who changed what: the newest acts of operators, kept with the state.
//!
//! Only what was carried out and has changed something stands here. Refusals and repeats are no part
//! of it, so asking for them costs the state nothing. Nor can a principal displace what others did by
//! acting often: it displaces its own acts.

use alloc::string::String;
use core::ops::Bound;

use crate::access::principal::Principal;
use crate::time::WallTime;
use crate::tree::Tree;

/// How many acts are kept. One more displaces the oldest act of the principal that has the most of
/// them; below [`LEVEL_RESTORE`](crate::LEVEL_RESTORE), the oldest of all.
pub const AUDIT_RECORDS_MAX: usize = 1_024;
/// The longest description of an act, in bytes; what is longer ends in `…`.
pub const AUDIT_TEXT_BYTES_MAX: usize = 1_024;

/// One act of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuditRecord {
    /// The entry that did it.
    pub index: u64,
    /// When, by the leader's wall clock.
    pub wall: WallTime,
    /// Who, if that was proven.
    pub principal: Option<Principal>,
    /// The node that proved it; 0 if none did.
    pub node: u64,
    /// What was done, in the words of the command line.
    pub act: String,
    /// Why, in the caller's own words; what a caller says of itself proves nothing.
    pub reason: String,
}

/// The newest acts, oldest first, and of each principal at least its share of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audit {
    records: Tree<u64, AuditRecord>,
    /// How many acts of each principal there are; of those without one together.
    counts: Tree<Option<Principal>, u64>,
    /// The newest act that an act of another principal outlived, 0 if there is none.
    dropped: u64,
}

impl Audit {
    /// Of a snapshot that knows the newest act that is gone out of its order.
    pub(crate) fn restored(dropped: u64) -> Self {
        Self {
            dropped,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, record: AuditRecord) {
        let of = record.principal.clone();
        let before = self.counts.get(&of).copied().unwrap_or(0);
        if self.records.insert(record.index, record).is_none() {
            self.counts.insert(of, before + 1);
        }
    }

    /// Drops the oldest act of all, as older releases do.
    pub(crate) fn drop_oldest(&mut self) {
        if self.records.len() > AUDIT_RECORDS_MAX
            && let Some((_, record)) = self.records.pop_first()
        {
            self.uncount(record.principal);
        }
    }

    /// Drops the oldest act of those who have the most: who acts again and again displaces its own acts,
    /// and none of a principal that has fewer.
    pub(crate) fn drop_of_most(&mut self) {
        if self.records.len() <= AUDIT_RECORDS_MAX {
            return;
        }
        let most = self.counts.iter().map(|(_, count)| *count).max();
        let has_most = |record: &AuditRecord| self.counts.get(&record.principal).copied() == most;
        let oldest = self.iter().find(|record| has_most(record));
        let Some(index) = oldest.map(|record| record.index) else {
            return;
        };
        if let Some(record) = self.records.remove(&index) {
            self.dropped = self.dropped.max(index);
            self.uncount(record.principal);
        }
    }

    fn uncount(&mut self, of: Option<Principal>) {
        match self.counts.get_mut(&of) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.counts.remove(&of)),
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &AuditRecord> {
        self.records.iter().map(|(_, record)| record)
    }

    pub(crate) fn after(&self, index: u64) -> impl Iterator<Item = &AuditRecord> {
        let behind = self.records.iter_from(Bound::Excluded(&index));
        behind.map(|(_, record)| record)
    }

    /// The act from which on none was dropped.
    pub(crate) fn complete_from(&self) -> Option<&AuditRecord> {
        self.after(self.dropped).next()
    }

    /// Whether acts behind this index may have been dropped. What older releases dropped they have not
    /// counted, so a full list is taken for one that has lost its beginning.
    pub(crate) fn may_lack_after(&self, index: u64) -> bool {
        let oldest = self.records.first().map(|(oldest, _)| *oldest);
        // Between two indices that follow each other nothing was dropped.
        let is_before = |oldest| index.saturating_add(1) < oldest;
        let lacks_begin = self.records.len() >= AUDIT_RECORDS_MAX && oldest.is_some_and(is_before);
        self.dropped > index || lacks_begin
    }
}
