//! How many living sessions have which TTL.

use alloc::collections::BTreeMap;

use crate::time::Millis;

/// A multiset of TTLs. It is counted from the living sessions alone, so a restored state has the
/// same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ttls(BTreeMap<Millis, u64>);

impl Ttls {
    pub(crate) fn insert(&mut self, ttl: Millis) {
        *self.0.entry(ttl).or_default() += 1;
    }

    /// Takes one away that was put in before.
    pub(crate) fn remove(&mut self, ttl: Millis) {
        if let Some(count) = self.0.get_mut(&ttl) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&ttl);
            }
        }
    }

    pub(crate) fn least(&self) -> Option<Millis> {
        self.0.first_key_value().map(|(ttl, _)| *ttl)
    }
}
