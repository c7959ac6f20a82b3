//! The watches that a node serves, and how many of them one principal may have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_core::Principal;
use ringfence_proto::Refusal;

use crate::limits::{WATCHERS_MAX, WATCHERS_PER_PRINCIPAL_MAX};
use crate::status::limit;

const ADVICE: &str = "watch at another node, or with fewer watches";

/// The watches of a node. Each clone is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchers(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    by_principal: HashMap<Option<Principal>, usize>,
}

/// One watch; it counts until it is dropped.
#[derive(Debug)]
pub struct WatchPlace {
    watchers: Watchers,
    principal: Option<Principal>,
}

impl Watchers {
    /// A place for one more watch. Where rights bind, no principal takes the places of all others.
    ///
    /// # Errors
    /// [`Reason::Limit`](ringfence_proto::v1::Reason::Limit): the node, or this principal at it, has as
    /// many as it may.
    pub(crate) fn take(
        &self,
        principal: Option<&Principal>,
        rights_bind: bool,
    ) -> Result<WatchPlace, Refusal> {
        let mut taken = self.lock();
        if taken.count >= WATCHERS_MAX {
            return Err(limit("watchers_per_node", WATCHERS_MAX, ADVICE));
        }
        let principal = principal.cloned();
        let own = taken.by_principal.entry(principal.clone()).or_default();
        if rights_bind && *own >= WATCHERS_PER_PRINCIPAL_MAX {
            let max = WATCHERS_PER_PRINCIPAL_MAX;
            return Err(limit("watchers_per_principal", max, ADVICE));
        }
        *own += 1;
        taken.count += 1;
        let watchers = self.clone();
        Ok(WatchPlace {
            watchers,
            principal,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics while it holds the lock, so that the counts are whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WatchPlace {
    fn drop(&mut self) {
        let mut taken = self.watchers.lock();
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
        let watchers = Watchers::default();
        let (small, other) = (principal("token:small"), principal("token:other"));
        let take = |count| -> Vec<WatchPlace> {
            let places = (0..count).map(|_| watchers.take(Some(&small), true));
            places.collect::<Result<_, _>>().unwrap()
        };
        let mut places = take(WATCHERS_PER_PRINCIPAL_MAX);
        let refused = watchers.take(Some(&small), true).unwrap_err();
        assert_eq!(refused.metadata["limit"], "watchers_per_principal");
        watchers.take(Some(&other), true).unwrap();

        places.pop();
        places.extend(take(1));
        drop(places);
        assert_eq!(watchers.lock().count, 0);
        assert!(watchers.lock().by_principal.is_empty());
    }

    #[test]
    fn without_rights_one_caller_may_take_all_and_a_node_has_so_many() {
        let watchers = Watchers::default();
        let places = (0..WATCHERS_MAX).map(|_| watchers.take(None, false));
        let places: Vec<_> = places.collect::<Result<_, _>>().unwrap();
        let refused = watchers.take(None, false).unwrap_err();
        assert_eq!(refused.metadata["limit"], "watchers_per_node");
        drop(places);
        watchers.take(None, false).unwrap();
    }
}
