//! The floors that are remembered: those of the names that were granted last.

use std::collections::{BTreeSet, HashMap};

use ringfence_core::{FencingToken, LeaseName};

/// What a name is counted with besides its own bytes: its places in two collections.
pub(super) const NAME_OVERHEAD: usize = 160;

/// Bounded floors. Tokens grow over the whole cluster, so the smallest floor belongs to the name
/// whose last grant is the oldest: it is forgotten first, and [`Floors::forgotten`] remembers how new
/// a forgotten floor can be at most. A token above that is never one of a forgotten name's past.
pub(super) struct Floors {
    by_name: HashMap<LeaseName, FencingToken>,
    /// The same, the oldest grant first.
    by_age: BTreeSet<(FencingToken, LeaseName)>,
    bytes: usize,
    names_max: usize,
    bytes_max: usize,
    /// Only grows.
    forgotten: Option<FencingToken>,
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

    /// Raises the floor of a name; says whether it is known and has risen.
    pub(super) fn raise(&mut self, name: LeaseName, token: FencingToken) -> bool {
        match self.by_name.get_mut(&name) {
            // A stream that begins again may tell what is older.
            Some(floor) if *floor >= token => return false,
            Some(floor) => {
                let before = std::mem::replace(floor, token);
                self.by_age.remove(&(before, name.clone()));
            }
            None => {
                self.bytes += cost(&name);
                self.by_name.insert(name.clone(), token);
            }
        }
        self.by_age.insert((token, name.clone()));
        self.forget();
        self.by_name.contains_key(&name)
    }

    /// The cluster that granted all of these is over: its last grants have ended, too. Each floor is
    /// raised by one, above the grant that it is the token of.
    pub(super) fn end_all(&mut self) {
        let over = |token: FencingToken| FencingToken::new(token.get() + 1).unwrap_or(token);
        for floor in self.by_name.values_mut() {
            *floor = over(*floor);
        }
        let by_age = std::mem::take(&mut self.by_age).into_iter();
        self.by_age = by_age.map(|(token, name)| (over(token), name)).collect();
        self.forgotten = self.forgotten.map(over);
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
        self.by_name.get(name).copied()
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
    fn the_last_grants_of_a_cluster_end_with_it() {
        let mut floors = Floors::new(2, usize::MAX);
        for (text, value) in [("a", 1), ("b", 5), ("c", 6)] {
            floors.raise(name(text), token(value));
        }
        floors.end_all();
        assert_eq!(floors.get(&name("b")), Some(token(6)));
        assert_eq!(floors.get(&name("c")), Some(token(7)));
        assert_eq!(floors.forgotten(), Some(token(2)));
        assert!(
            floors.raise(name("b"), token(9)),
            "the next cluster grants it"
        );
        floors.raise(name("d"), token(10));
        assert_eq!((floors.len(), floors.get(&name("c"))), (2, None));
    }
}
