//! How much of one sort of work a node has under way, watches or lists, and how much of it for one
//! principal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_core::Principal;
use ringfence_proto::Refusal;

use crate::limits::{LISTS_MAX, LISTS_PER_PRINCIPAL_MAX, WATCHERS_MAX, WATCHERS_PER_PRINCIPAL_MAX};
use crate::status::limit;

/// The places of one sort of work. Each clone is the same.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    sort: &'static Sort,
    taken: Arc<Mutex<Taken>>,
}

/// A sort of work, and how much of it may be under way.
#[derive(Debug)]
struct Sort {
    of_node: (&'static str, usize),
    of_principal: (&'static str, usize),
    advice: &'static str,
}

static WATCHES: Sort = Sort {
    of_node: ("watchers_per_node", WATCHERS_MAX),
    of_principal: ("watchers_per_principal", WATCHERS_PER_PRINCIPAL_MAX),
    advice: "watch at another node, or with fewer watches",
};

static LISTS: Sort = Sort {
    of_node: ("lists_per_node", LISTS_MAX),
    of_principal: ("lists_per_principal", LISTS_PER_PRINCIPAL_MAX),
    advice: "list again when others are over, or with a limit, and read the answers at once",
};

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    by_principal: HashMap<Option<Principal>, usize>,
}

/// One of them; it counts until it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    principal: Option<Principal>,
}

impl Places {
    /// Those of watches, of leases, of floors and of objects.
    pub(crate) fn of_watches() -> Self {
        Self::of(&WATCHES)
    }

    /// Those of lists of objects that take more than one step.
    pub(crate) fn of_lists() -> Self {
        Self::of(&LISTS)
    }

    fn of(sort: &'static Sort) -> Self {
        let taken = Arc::default();
        Self { sort, taken }
    }

    /// A place for one more. Where rights bind, no principal takes the places of all others.
    ///
    /// # Errors
    /// [`Reason::Limit`](ringfence_proto::v1::Reason::Limit): the node, or this principal at it, has as
    /// many as it may.
    pub(crate) fn take(
        &self,
        principal: Option<&Principal>,
        rights_bind: bool,
    ) -> Result<Place, Refusal> {
        let Sort {
            of_node,
            of_principal,
            advice,
        } = self.sort;
        let full = |(name, max): (&str, usize)| limit(name, max, advice);
        let mut taken = self.lock();
        if taken.count >= of_node.1 {
            return Err(full(*of_node));
        }
        let principal = principal.cloned();
        let own = taken.by_principal.get(&principal).copied();
        let own = own.unwrap_or_default();
        if rights_bind && own >= of_principal.1 {
            return Err(full(*of_principal));
        }
        taken.by_principal.insert(principal.clone(), own + 1);
        taken.count += 1;
        let places = self.clone();
        Ok(Place { places, principal })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics while it holds the lock, so that the counts are whole.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.count -= 1;
        if let Some(own) = taken.by_principal.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                taken.by_principal.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn principal(name: &str) -> Principal {
        Principal::parse(name).unwrap()
    }

    #[test]
    fn a_principal_leaves_places_for_others_where_rights_bind() {
        for places in [Places::of_watches(), Places::of_lists()] {
            let (name, max) = places.sort.of_principal;
            let (small, other) = (principal("token:small"), principal("token:other"));
            let take = |count| -> Vec<Place> {
                let taken = (0..count).map(|_| places.take(Some(&small), true));
                taken.collect::<Result<_, _>>().unwrap()
            };
            let mut taken = take(max);
            let refused = places.take(Some(&small), true).unwrap_err();
            assert_eq!(refused.metadata["limit"], name);
            places.take(Some(&other), true).unwrap();

            taken.pop();
            taken.extend(take(1));
            drop(taken);
            assert_eq!(places.lock().count, 0);
            assert!(places.lock().by_principal.is_empty());
        }
    }

    #[test]
    fn without_rights_one_caller_may_take_all_and_a_node_has_so_many() {
        for places in [Places::of_watches(), Places::of_lists()] {
            let (name, max) = places.sort.of_node;
            let taken = (0..max).map(|_| places.take(None, false));
            let taken: Vec<_> = taken.collect::<Result<_, _>>().unwrap();
            let refused = places.take(None, false).unwrap_err();
            assert_eq!(refused.metadata["limit"], name);
            drop(taken);
            places.take(None, false).unwrap();
        }
    }
}
