//! The grants of one name as a chain: the name leads to its newest grant, each grant to the one
//! before it. A key per grant and name would cost as much again as the grants themselves.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;

use ringfence_proto::raft as pb;

/// Where the chains are read from.
pub(crate) trait Chains {
    /// The record of a grant.
    fn record(&self, token: u64) -> io::Result<Option<pb::HistoryRecord>>;
    /// The newest grant of a name, 0 if there is none.
    fn newest(&self, name: &str) -> io::Result<u64>;
}

/// Changes of chains that are written together.
pub(crate) struct Links<'a, C> {
    chains: &'a C,
    /// Records as they shall be.
    pub(crate) records: BTreeMap<u64, pb::HistoryRecord>,
    /// The newest grants as they shall be, by name.
    pub(crate) newest: HashMap<String, u64>,
    /// The oldest record of each name that was put into its chain here.
    above: HashMap<String, u64>,
}

impl<'a, C: Chains> Links<'a, C> {
    pub(crate) fn of(chains: &'a C) -> Self {
        Self {
            chains,
            records: BTreeMap::new(),
            newest: HashMap::new(),
            above: HashMap::new(),
        }
    }

    /// Puts a record that is in no chain into its name's. Those of one name come newest first, so
    /// that all of them together walk down the chain once.
    pub(crate) fn put(&mut self, mut record: pb::HistoryRecord) -> io::Result<()> {
        let token = record.token;
        let mut above = self.above.get(&record.name).copied();
        let mut below = match above {
            None => self.newest_of(&record.name)?,
            Some(above) => self.below(above)?,
        };
        while below > token {
            above = Some(below);
            below = self.below(below)?;
        }
        record.previous = below;
        match above {
            None => drop(self.newest.insert(record.name.clone(), token)),
            Some(above) => {
                if let Some(above) = self.record(above)? {
                    above.previous = token;
                }
            }
        }
        self.above.insert(record.name.clone(), token);
        self.records.insert(token, record);
        Ok(())
    }

    fn newest_of(&self, name: &str) -> io::Result<u64> {
        match self.newest.get(name) {
            Some(newest) => Ok(*newest),
            None => self.chains.newest(name),
        }
    }

    /// The grant before this one; 0 if there is none, or none any more.
    fn below(&mut self, token: u64) -> io::Result<u64> {
        Ok(self.record(token)?.map_or(0, |record| record.previous))
    }

    fn record(&mut self, token: u64) -> io::Result<Option<&mut pb::HistoryRecord>> {
        match self.records.entry(token) {
            Entry::Occupied(known) => Ok(Some(known.into_mut())),
            Entry::Vacant(free) => {
                let read = self.chains.record(token)?;
                Ok(read.map(|record| free.insert(record)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Kept {
        records: BTreeMap<u64, pb::HistoryRecord>,
        newest: HashMap<String, u64>,
    }

    impl Chains for Kept {
        fn record(&self, token: u64) -> io::Result<Option<pb::HistoryRecord>> {
            Ok(self.records.get(&token).cloned())
        }

        fn newest(&self, name: &str) -> io::Result<u64> {
            Ok(self.newest.get(name).copied().unwrap_or(0))
        }
    }

    impl Kept {
        fn add(&mut self, mut grants: Vec<(u64, &str)>) {
            grants.retain(|(token, _)| !self.records.contains_key(token));
            grants.sort_unstable_by_key(|(token, _)| std::cmp::Reverse(*token));
            let mut links = Links::of(self);
            for (token, name) in grants {
                let record = pb::HistoryRecord {
                    token,
                    name: name.to_owned(),
                    ..pb::HistoryRecord::default()
                };
                links.put(record).unwrap();
            }
            let (records, newest) = (links.records, links.newest);
            self.records.extend(records);
            self.newest.extend(newest);
        }

        fn chain(&self, name: &str) -> Vec<u64> {
            let next = |token: &u64| self.records.get(token).map(|record| record.previous);
            let newest = self.newest(name).unwrap();
            std::iter::successors(Some(newest), next)
                .filter(|token| *token > 0)
                .collect()
        }
    }

    proptest! {
        #[test]
        fn a_chain_holds_every_grant_of_its_name_newest_first(
            batches in prop::collection::vec(prop::collection::vec(1_u64..200, 1..40), 1..8)
        ) {
            // A token belongs to one name for ever.
            let name = |token: u64| if token.is_multiple_of(3) { "a" } else { "b" };
            let mut kept = Kept::default();
            for mut tokens in batches {
                tokens.sort_unstable();
                tokens.dedup();
                kept.add(tokens.into_iter().map(|token| (token, name(token))).collect());
            }
            for wanted in ["a", "b"] {
                let all = kept.records.keys().rev().copied();
                let expected: Vec<u64> = all.filter(|token| name(*token) == wanted).collect();
                prop_assert_eq!(kept.chain(wanted), expected);
            }
        }
    }
}
