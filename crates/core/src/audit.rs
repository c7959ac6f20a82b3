//! Who changed what: the newest acts of operators, kept with the state.
//!
//! Only what was carried out stands here. Refusals are no part of it, so asking for what is refused
//! costs the state nothing.

use alloc::string::String;
use core::ops::Bound;

use crate::access::principal::Principal;
use crate::time::WallTime;
use crate::tree::Tree;

/// How many acts are kept.
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

/// The newest acts, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audit {
    records: Tree<u64, AuditRecord>,
}

impl Audit {
    pub(crate) fn add(&mut self, record: AuditRecord) {
        self.records.insert(record.index, record);
        if self.records.len() > AUDIT_RECORDS_MAX {
            self.records.pop_first();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &AuditRecord> {
        self.records.iter().map(|(_, record)| record)
    }

    pub(crate) fn after(&self, index: u64) -> impl Iterator<Item = &AuditRecord> {
        let behind = self.records.iter_from(Bound::Excluded(&index));
        behind.map(|(_, record)| record)
    }

    /// Whether acts behind this index may have been dropped. Nothing counts what was dropped, so a
    /// full list is taken for one that has lost its beginning.
    pub(crate) fn may_lack_after(&self, index: u64) -> bool {
        let oldest = self.records.first().map(|(oldest, _)| *oldest);
        // Between two indices that follow each other nothing was dropped.
        let is_before = |oldest| index.saturating_add(1) < oldest;
        self.records.len() >= AUDIT_RECORDS_MAX && oldest.is_some_and(is_before)
    }
}
