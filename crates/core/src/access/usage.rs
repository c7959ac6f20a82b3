//! What each principal has: counted, so that none takes all there is.

use super::principal::Principal;
use crate::lease::LeaseDue;
use crate::name::LeaseName;
use crate::time::ClusterTime;
use crate::tree::Tree;

/// What one principal has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// Its sessions, those that ended within the last minute included.
    pub(crate) sessions: u64,
    /// Leases, waits and unacknowledged losses of its living sessions.
    pub(crate) leases: u64,
    /// Names that are kept for it and that are blocked, so they cannot go yet.
    pub(crate) blocked: u64,
    /// The idle names that are kept for it, in the order in which they go.
    idle: Tree<(ClusterTime, LeaseName), ()>,
}

impl Usage {
    /// How many idle names are kept for it.
    pub(crate) fn idle(&self) -> u64 {
        self.idle.len() as u64
    }

    fn is_nothing(&self) -> bool {
        self.sessions == 0 && self.leases == 0 && self.blocked == 0 && self.idle.is_empty()
    }
}

/// A principal, ordered by a number that follows from its text. Each request searches for one several
/// times: numbers stand in the tree itself, texts of many bytes in common elsewhere in memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    number: u64,
    principal: Principal,
}

impl Key {
    /// The number is the hash FNV-1a of Fowler, Noll and Vo, by eight bytes at a time. Principals that
    /// were chosen to have the same one differ by their texts.
    fn of(principal: &Principal) -> Self {
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let words = principal.as_str().as_bytes().chunks(8);
        let number = words.fold(BASIS, |number, bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            (number ^ u64::from_le_bytes(word)).wrapping_mul(PRIME)
        });
        Self {
            number,
            principal: principal.clone(),
        }
    }
}

/// What principals have; follows from the sessions and from what names are kept for whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usages {
    by_principal: Tree<Key, Usage>,
}

impl Usages {
    /// What a principal has, if it has something.
    pub(crate) fn of(&self, principal: &Principal) -> Option<&Usage> {
        self.by_principal.get(&Key::of(principal))
    }

    /// Counts what a principal has more or less. One that has nothing left is forgotten.
    pub(crate) fn change(&mut self, principal: &Principal, change: impl FnOnce(&mut Usage)) {
        let key = Key::of(principal);
        // One search where the principal has something before and after: each request passes here.
        if let Some(known) = self.by_principal.get_mut(&key) {
            change(known);
            if known.is_nothing() {
                self.by_principal.remove(&key);
            }
            return;
        }
        let mut usage = Usage::default();
        change(&mut usage);
        if !usage.is_nothing() {
            self.by_principal.insert(key, usage);
        }
    }

    /// Counts a name that is kept for a principal, by what it waits for.
    pub(crate) fn keep(&mut self, principal: &Principal, name: &LeaseName, due: LeaseDue) {
        self.change(principal, |usage| match due {
            LeaseDue::Block(_) => usage.blocked += 1,
            LeaseDue::Idle(since) => drop(usage.idle.insert((since, name.clone()), ())),
        });
    }

    /// Takes back what [`Usages::keep`] counted.
    pub(crate) fn let_go(&mut self, principal: &Principal, name: &LeaseName, due: LeaseDue) {
        self.change(principal, |usage| match due {
            LeaseDue::Block(_) => usage.blocked = usage.blocked.saturating_sub(1),
            LeaseDue::Idle(since) => drop(usage.idle.remove(&(since, name.clone()))),
        });
    }

    /// The name but for `other` that has been idle for the longest time among those of a principal;
    /// among equals the first by name.
    pub(crate) fn longest_idle(
        &self,
        principal: &Principal,
        other: &LeaseName,
    ) -> Option<&LeaseName> {
        let mut names = self.of(principal)?.idle.iter();
        let found = names.find(|((_, name), ())| name != other);
        found.map(|((_, name), ())| name)
    }
}
