//! What each principal has: counted, so that none takes all there is.

use alloc::vec::Vec;
use core::fmt;

use super::principal::Principal;
use crate::lease::LeaseDue;
use crate::name::LeaseName;
use crate::time::ClusterTime;
use crate::tree::Tree;

/// What one principal has, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Its sessions, those that ended within the last minute included.
    pub(crate) sessions: u64,
    /// Leases, waits and unacknowledged losses of its living sessions.
    pub(crate) leases: u64,
    /// Names that are kept for it and that are blocked, so they cannot go yet.
    pub(crate) blocked: u64,
    /// Idle names that are kept for it.
    pub(crate) idle: u64,
    /// Lease objects that are its own.
    pub(crate) objects: u64,
}

/// For whom a name is kept that no session holds. It counts for that principal unless it counts as
/// one of its waits or losses already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) of: Principal,
    /// Whether the principal has yet to acknowledge its loss.
    pub(crate) lost: bool,
    /// Whether a session of the principal is the first in its queue.
    pub(crate) waits: bool,
}

impl Kept {
    pub(crate) fn counts(&self) -> bool {
        !self.lost && !self.waits
    }
}

#[derive(Clone, Debug, Default)]
struct Usage {
    counts: Counts,
    /// The idle names that are kept for it, in the order in which they go.
    idle: Tree<(ClusterTime, LeaseName), ()>,
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

/// What principals have, and what has none; follows from the sessions, the Lease objects, and what names are kept for whom.
#[derive(Clone, Default)]
pub(crate) struct Usages {
    by_principal: Tree<Key, Usage>,
    /// What has no principal, since nothing was proven when it began.
    unproven: Counts,
}

impl Usages {
    /// What a principal has.
    pub(crate) fn of(&self, principal: &Principal) -> Counts {
        let usage = self.by_principal.get(&Key::of(principal));
        usage.map(|usage| usage.counts).unwrap_or_default()
    }

    /// What has no principal.
    pub(crate) fn unproven(&self) -> Counts {
        self.unproven
    }

    /// Counts what a principal, or what has none, has more or less.
    pub(crate) fn change(
        &mut self,
        principal: Option<&Principal>,
        change: impl FnOnce(&mut Counts),
    ) {
        match principal {
            Some(principal) => self.change_usage(principal, |usage| change(&mut usage.counts)),
            None => change(&mut self.unproven),
        }
    }

    /// One that has nothing left is forgotten.
    fn change_usage(&mut self, principal: &Principal, change: impl FnOnce(&mut Usage)) {
        let key = Key::of(principal);
        // One search where the principal has something before and after: each request passes here.
        if let Some(known) = self.by_principal.get_mut(&key) {
            change(known);
            if known.counts == Counts::default() {
                self.by_principal.remove(&key);
            }
            return;
        }
        let mut usage = Usage::default();
        change(&mut usage);
        if usage.counts != Counts::default() {
            self.by_principal.insert(key, usage);
        }
    }

    /// Counts a name that is kept for a principal, by what it waits for.
    pub(crate) fn keep(&mut self, kept: &Kept, name: &LeaseName, due: LeaseDue) {
        if !kept.counts() {
            return;
        }
        self.change_usage(&kept.of, |usage| match due {
            LeaseDue::Block(_) => usage.counts.blocked += 1,
            LeaseDue::Idle(since) => {
                usage.idle.insert((since, name.clone()), ());
                usage.counts.idle = usage.idle.len() as u64;
            }
        });
    }

    /// Takes back what [`Usages::keep`] counted.
    pub(crate) fn let_go(&mut self, kept: &Kept, name: &LeaseName, due: LeaseDue) {
        if !kept.counts() {
            return;
        }
        self.change_usage(&kept.of, |usage| match due {
            LeaseDue::Block(_) => less(&mut usage.counts.blocked, 1),
            LeaseDue::Idle(since) => {
                usage.idle.remove(&(since, name.clone()));
                usage.counts.idle = usage.idle.len() as u64;
            }
        });
    }

    /// The name but for `other` that has been idle for the longest time among those of a principal;
    /// among equals the first by name.
    pub(crate) fn longest_idle(
        &self,
        principal: &Principal,
        other: &LeaseName,
    ) -> Option<&LeaseName> {
        let mut names = self.by_principal.get(&Key::of(principal))?.idle.iter();
        let found = names.find(|((_, name), ())| name != other);
        found.map(|((_, name), ())| name)
    }
}

/// In the order of the principals, and whatever the order in which it was counted.
impl fmt::Debug for Usages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (key, usage) in self.by_principal.iter() {
            let idle: Vec<_> = usage.idle.iter().map(|(name, ())| name).collect();
            map.entry(&key.principal, &(usage.counts, idle));
        }
        map.entry(&"unproven", &self.unproven).finish()
    }
}

/// Counts so many less.
pub(crate) fn less(count: &mut u64, by: u64) {
    *count = count.saturating_sub(by);
}
