//! What each principal has: counted, so that none takes all there is.

use super::principal::Principal;
use crate::lease::LeaseDue;
use crate::name::LeaseName;
use crate::time::ClusterTime;
use crate::tree::Tree;

/// What one principal has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Its sessions, those that ended within the last minute included.
    pub(crate) sessions: u64,
    /// Leases, waits and unacknowledged losses of its living sessions.
    pub(crate) leases: u64,
    /// Names that are kept for it and that are blocked, so they cannot go yet.
    pub(crate) blocked: u64,
}

/// What principals have; follows from the sessions and from what names are kept for whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usages {
    by_principal: Tree<Principal, Usage>,
    /// The idle names that are kept for each, in the order in which they go.
    idle: Tree<Principal, Tree<(ClusterTime, LeaseName), ()>>,
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

    /// How many idle names are kept for a principal.
    pub(crate) fn idle_of(&self, principal: &Principal) -> u64 {
        self.idle.get(principal).map_or(0, Tree::len) as u64
    }

    /// Counts a name that is kept for a principal, by what it waits for.
    pub(crate) fn keep(&mut self, principal: &Principal, name: &LeaseName, due: LeaseDue) {
        match due {
            LeaseDue::Block(_) => self.change(principal, |usage| usage.blocked += 1),
            LeaseDue::Idle(since) => {
                if self.idle.get(principal).is_none() {
                    self.idle.insert(principal.clone(), Tree::default());
                }
                if let Some(names) = self.idle.get_mut(principal) {
                    names.insert((since, name.clone()), ());
                }
            }
        }
    }

    /// Takes back what [`Usages::keep`] counted.
    pub(crate) fn let_go(&mut self, principal: &Principal, name: &LeaseName, due: LeaseDue) {
        match due {
            LeaseDue::Block(_) => self.change(principal, |usage| {
                usage.blocked = usage.blocked.saturating_sub(1);
            }),
            LeaseDue::Idle(since) => {
                let Some(names) = self.idle.get_mut(principal) else {
                    return;
                };
                names.remove(&(since, name.clone()));
                if names.is_empty() {
                    self.idle.remove(principal);
                }
            }
        }
    }

    /// The name but for `other` that has been idle for the longest time among those of a principal;
    /// among equals the first by name.
    pub(crate) fn longest_idle(
        &self,
        principal: &Principal,
        other: &LeaseName,
    ) -> Option<&LeaseName> {
        let mut names = self.idle.get(principal)?.iter();
        let found = names.find(|((_, name), ())| name != other);
        found.map(|((_, name), ())| name)
    }
}
