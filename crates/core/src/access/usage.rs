//! What each principal has: counted, so that none takes all there is.

use super::principal::Principal;
use crate::tree::Tree;

/// What one principal has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Its sessions, those that ended within the last minute included.
    pub(crate) sessions: u64,
    /// Leases, waits and unacknowledged losses of its living sessions.
    pub(crate) leases: u64,
}

/// What principals have; follows from the sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usages {
    by_principal: Tree<Principal, Usage>,
}

impl Usages {
    pub(crate) fn of(&self, principal: &Principal) -> Usage {
        self.by_principal
            .get(principal)
            .copied()
            .unwrap_or_default()
    }

    /// Counts what a principal has more or less. One that has nothing left is forgotten.
    pub(crate) fn change(&mut self, principal: &Principal, change: impl FnOnce(&mut Usage)) {
        // One search where the principal has something before and after: each request passes here.
        if let Some(known) = self.by_principal.get_mut(principal) {
            change(known);
            if *known == Usage::default() {
                self.by_principal.remove(principal);
            }
            return;
        }
        let mut usage = Usage::default();
        change(&mut usage);
        if usage != Usage::default() {
            self.by_principal.insert(principal.clone(), usage);
        }
    }
}
