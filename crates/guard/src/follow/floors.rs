//! The floors that are remembered: those of the names that were granted last.

use std::collections::{BTreeSet, HashMap};

use ringfence_core::{FencingToken, LeaseName};

/// What a name is counted with besides its own bytes: its places in two collections.
pub(super) const NAME_OVERHEAD: usize = 160;

/// Bounded floors. Tokens grow over the whole cluster, so the smallest floor belongs to the name
/// whose last grant is the oldest: it is forgotten first, and [`Floors::forgotten`] remembers how new
/// a forgotten floor can be at most. A token above that is never one of a forgotten name's past.
pub(super) struct Floors {
    by_name: HashMap<LeaseName, Floor>,
    /// The same, the oldest grant first.
    by_age: BTreeSet<(FencingToken, LeaseName)>,
    bytes: usize,
    names_max: usize,
    bytes_max: usize,
    /// Only grows.
    forgotten: Option<FencingToken>,
}

#[derive(Clone, Copy)]
struct Floor {
    token: FencingToken,
    /// Whether the cluster that is followed now has reported it: else it may have ended with another.
    current: bool,
}

impl Floors {
    pub(super) fn new(names_max: usize, bytes_max: usize) -> Self {
        Self {
            by_name: HashMap::new(),
            by_age: BTreeSet::new(),
            bytes: 0,
            names_max,
            bytes_max,
            forgotten: None,
        }
    }

    /// Raises the floor of a name, as the cluster that is followed now reports it; says whether more is
    /// known of it than before.
    pub(super) fn raise(&mut self, name: LeaseName, token: FencingToken) -> bool {
        let current = Floor {
            token,
            current: true,
        };
        match self.by_name.get_mut(&name) {
            // A stream that begins again may tell what is older.
            Some(floor) if floor.token > token => return false,
            Some(floor) if floor.token == token => {
                return !std::mem::replace(floor, current).current;
            }
            Some(floor) => {
                let before = std::mem::replace(floor, current);
                self.by_age.remove(&(before.token, name.clone()));
            }
            None => {
                self.bytes += cost(&name);
                self.by_name.insert(name.clone(), current);
            }
        }
        self.by_age.insert((token, name.clone()));
        self.forget();
        self.by_name.contains_key(&name)
    }

    /// Another cluster is followed from here on. The floors stand, since a cluster that was restored
    /// grants greater tokens; which grants are in force, that cluster has to report.
    pub(super) fn change_cluster(&mut self) {
        for floor in self.by_name.values_mut() {
            floor.current = false;
        }
    }

    fn forget(&mut self) {
        while self.by_name.len() > self.names_max || self.bytes > self.bytes_max {
            let Some((token, name)) = self.by_age.pop_first() else {
                return;
            };
            self.by_name.remove(&name);
            self.bytes -= cost(&name);
            self.forgotten = self.forgotten.max(Some(token));
        }
    }

    pub(super) fn get(&self, name: &LeaseName) -> Option<FencingToken> {
        Some(self.by_name.get(name)?.token)
    }

    /// Whether the cluster that is followed now has reported this floor.
    pub(super) fn is_current(&self, name: &LeaseName) -> bool {
        self.by_name.get(name).is_some_and(|floor| floor.current)
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The greatest floor that was forgotten.
    pub(super) const fn forgotten(&self) -> Option<FencingToken> {
        self.forgotten
    }
}

fn cost(name: &LeaseName) -> usize {
    name.as_str().len() + NAME_OVERHEAD
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn name(text: &str) -> LeaseName {
        LeaseName::parse(text).unwrap()
    }

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value).unwrap()
    }

    #[test]
    fn the_names_granted_last_are_known_and_the_rest_is_bounded_by_one_token() {
        let mut floors = Floors::new(3, usize::MAX);
        for at in 1..=100 {
            assert!(floors.raise(name(&format!("db/{at}")), token(at)));
        }
        assert_eq!(floors.len(), 3);
        assert_eq!(floors.forgotten(), Some(token(97)));
        assert_eq!(floors.get(&name("db/98")), Some(token(98)));
        assert_eq!(floors.get(&name("db/97")), None);
        // A forgotten name comes back with its next grant.
        assert!(floors.raise(name("db/1"), token(101)));
        assert_eq!(floors.get(&name("db/1")), Some(token(101)));
        assert_eq!(floors.forgotten(), Some(token(98)));
        // What is older than all that is known is not remembered.
        assert!(!floors.raise(name("db/5"), token(5)));
        assert_eq!(floors.forgotten(), Some(token(98)));
        assert_eq!(floors.by_age.len(), 3);
    }

    #[test]
    fn long_names_are_bounded_by_their_bytes() {
        let room = 10 * (255 + NAME_OVERHEAD);
        let mut floors = Floors::new(usize::MAX, room);
        for at in 1..=1_000 {
            floors.raise(name(&format!("{at:0>255}")), token(at));
            assert!(floors.bytes <= room);
        }
        assert_eq!(floors.len(), 10);
        let mut none = Floors::new(0, 0);
        assert!(!none.raise(name("a"), token(1)));
        assert_eq!((none.len(), none.bytes), (0, 0));
    }

    #[test]
    fn another_cluster_has_to_report_a_floor_again_and_lowers_none() {
        let mut floors = Floors::new(2, usize::MAX);
        for (text, value) in [("a", 1), ("b", 5), ("c", 6)] {
            floors.raise(name(text), token(value));
        }
        assert!(floors.is_current(&name("b")) && !floors.is_current(&name("a")));
        floors.change_cluster();
        assert_eq!(floors.get(&name("b")), Some(token(5)));
        assert!(!floors.is_current(&name("b")));
        assert!(
            !floors.raise(name("b"), token(4)),
            "a smaller one says nothing"
        );
        assert!(!floors.is_current(&name("b")));
        assert!(floors.raise(name("b"), token(5)));
        assert!(floors.is_current(&name("b")));
        assert!(!floors.raise(name("b"), token(5)), "nothing new");
        assert_eq!((floors.len(), floors.forgotten()), (2, Some(token(1))));
    }
}
