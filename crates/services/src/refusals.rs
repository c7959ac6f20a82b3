//! What a node refuses, by caller and kind, for its audit log: counted in memory that does not grow,
//! and never logged in the cluster.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::limits::REFUSALS_COUNTED_APART_MAX;

/// A kind of refusal of one caller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// The reason as the protocol writes it, as `PERMISSION_DENIED`.
    pub reason: &'static str,
    /// The verb that the caller lacks, `any` for a caller that may do nothing, or the limit that it
    /// has reached.
    pub what: String,
    /// Who was refused; empty if that was not proven.
    pub principal: String,
    /// Where the refused connection comes from; empty if a principal was proven.
    pub source: String,
    /// Whether it was refused, or would have been in the mode `enforced`.
    pub enforced: bool,
}

/// Counts since they were taken last.
#[derive(Debug, Default)]
pub struct Refusals {
    wanted: AtomicBool,
    counts: Mutex<RefusalCounts>,
}

/// How often each kind was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusalCounts {
    /// At most 1,024 kinds.
    pub apart: BTreeMap<Refused, u64>,
    /// All further ones together.
    pub others: u64,
}

impl Refusals {
    /// From now on refusals are counted: some task takes the counts now and then.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// What was counted since this was called last.
    #[must_use]
    pub fn take(&self) -> RefusalCounts {
        std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts one, if the counts are wanted.
    pub(crate) fn count(&self, refused: impl FnOnce() -> Refused) {
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        let refused = refused();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = counts.apart.len() >= REFUSALS_COUNTED_APART_MAX;
        match counts.apart.get_mut(&refused) {
            Some(count) => *count = count.saturating_add(1),
            None if is_full => counts.others = counts.others.saturating_add(1),
            None => drop(counts.apart.insert(refused, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(n: usize) -> Refused {
        Refused {
            reason: "PERMISSION_DENIED",
            what: "acquire".to_owned(),
            principal: format!("token:t{n}"),
            source: String::new(),
            enforced: true,
        }
    }

    #[test]
    fn attack_a_million_principals_are_counted_in_a_table_of_a_thousand() {
        let refusals = Refusals::default();
        refusals.count(|| panic!("it is not wanted"));
        refusals.want();
        for n in 0..1_000_000 {
            refusals.count(|| refused(n));
            refusals.count(|| refused(0));
        }
        let counts = refusals.take();
        assert_eq!(counts.apart.len(), REFUSALS_COUNTED_APART_MAX);
        assert_eq!(counts.apart[&refused(0)], 1_000_001);
        let apart: u64 = counts.apart.values().sum();
        assert_eq!(apart + counts.others, 2_000_000);
        assert_eq!(refusals.take(), RefusalCounts::default());
    }
}
