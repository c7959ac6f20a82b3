//! The index on disk.
//!
//! One tree, so that a batch is atomic: `g` and a token lead to a record; `h` and a name lead to the
//! token of its newest grant, whose record leads to the one before; `m` is what the index says of
//! itself.
//!
//! sled 1.0 alpha does not survive an error: after a failed flush each further flush waits for
//! ever. Every handle flushes when it is dropped, also the one inside an iterator, and keeps the
//! error to itself. So one flush runs at a time, none on a store with an error, and the handles
//! and iterators of a store with an error are leaked instead of dropped.

use std::io;
use std::mem;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use ringfence_core::LeaseName;
use ringfence_proto::raft as pb;
use sled::{Batch, Config, Db, Iter};

use crate::chain::{Chains, Links};
use crate::health::damage;
use crate::{ranges, record};

const CACHE_BYTES: usize = 8 << 20;
/// Entries in a leaf, which is written whole: a grant touches the leaf of its token, which all new
/// ones share, and the leaf of its name.
const LEAF: usize = 256;
/// The least effort of compression: it is most of what a write costs.
const COMPRESSION: i32 = 1;
const GRANT: u8 = b'g';
const NEWEST: u8 = b'h';
const META: &[u8] = b"m";
/// How the keys above are laid out; an index laid out otherwise is built again.
const LAYOUT: u64 = 2;

/// A handle of the index. Each thread needs its own.
pub(crate) struct Store {
    db: Option<Db<LEAF>>,
    broken: Arc<AtomicBool>,
    /// Held during every flush.
    flushing: Arc<Mutex<()>>,
}

/// An iteration over all grants, in the order of tokens.
struct Scan<'a> {
    store: &'a Store,
    entries: Option<Iter<LEAF>>,
}

impl Iterator for Scan<'_> {
    type Item = io::Result<(sled::InlineArray, sled::InlineArray)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.as_mut()?.next()
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        let _one_flush = self.store.lock();
        // A panic within sled leaves its locks as they were.
        if (self.store.is_unsound() || std::thread::panicking())
            && let Some(entries) = self.entries.take()
        {
            mem::forget(entries);
        }
        self.entries = None;
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A panic within sled leaves its locks as they were.
        let hangs = self.is_unsound() || std::thread::panicking();
        let db = self.db.take();
        let flushing = self.flushing.clone();
        let _one_flush = flushing.lock().unwrap_or_else(PoisonError::into_inner);
        match hangs {
            true => mem::forget(db),
            false => drop(db),
        }
    }
}

/// Changes to be written in one step.
pub(crate) struct Change {
    records: std::collections::BTreeMap<u64, pb::HistoryRecord>,
    covered: Vec<(u64, u64)>,
}

impl Change {
    pub(crate) fn new() -> Self {
        Self {
            records: std::collections::BTreeMap::new(),
            covered: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, record: pb::HistoryRecord) {
        match self.records.entry(record.token) {
            std::collections::btree_map::Entry::Occupied(mut known) => {
                record::merge(known.get_mut(), record);
            }
            std::collections::btree_map::Entry::Vacant(free) => {
                let _ = free.insert(record);
            }
        }
    }

    pub(crate) fn cover(&mut self, first: u64, last: u64) {
        ranges::add(&mut self.covered, first, last);
    }

    /// What it knows of a grant.
    pub(crate) fn take(&mut self, token: u64) -> Option<pb::HistoryRecord> {
        self.records.remove(&token)
    }

    /// What it knows of other grants, newest first.
    pub(crate) fn into_records(self) -> impl Iterator<Item = pb::HistoryRecord> {
        self.records.into_values().rev()
    }

    pub(crate) fn covered(&self) -> &[(u64, u64)] {
        &self.covered
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.covered.is_empty()
    }
}

impl Store {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let config = Config::new()
            .path(path)
            .cache_capacity_bytes(CACHE_BYTES)
            .zstd_compression_level(COMPRESSION)
            // Flushed by hand, after each write.
            .flush_every_ms(None);
        let store = Self {
            db: Some(config.open()?),
            broken: Arc::default(),
            flushing: Arc::default(),
        };
        let checked = store.check();
        if checked.is_err() {
            store.breaks();
        }
        checked.map(|()| store)
    }

    fn check(&self) -> io::Result<()> {
        let layout = self.meta()?.layout;
        if layout != LAYOUT && !self.db()?.is_empty()? {
            return Err(damage(format!("the layout is {layout}, expected {LAYOUT}")));
        }
        Ok(())
    }

    /// Another handle of the same index.
    pub(crate) fn another(&self) -> io::Result<Self> {
        Ok(Self {
            db: Some(self.db()?.clone()),
            broken: self.broken.clone(),
            flushing: self.flushing.clone(),
        })
    }

    /// Notes that sled failed: all handles become useless and are leaked.
    pub(crate) fn breaks(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.flushing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a flush would wait for ever.
    fn is_unsound(&self) -> bool {
        let fails = |db: &Db<LEAF>| db.check_error().is_err();
        self.is_broken() || self.db.as_ref().is_some_and(fails)
    }

    /// The error that sled ran into, maybe in a flush that kept it to itself.
    fn check_error(&self) -> io::Result<()> {
        self.db()?.check_error()
    }

    fn scan(&self) -> io::Result<Scan<'_>> {
        let entries = self.db()?.scan_prefix([GRANT]);
        Ok(Scan {
            store: self,
            entries: Some(entries),
        })
    }

    fn db(&self) -> io::Result<&Db<LEAF>> {
        let db = self.db.as_ref().filter(|_| !self.is_broken());
        db.ok_or_else(|| io::Error::other("the index failed and is opened again"))
    }

    pub(crate) fn of_token(&self, token: u64) -> io::Result<Option<pb::HistoryRecord>> {
        self.db()?
            .get(grant_key(token))?
            .map(|bytes| decode(&bytes))
            .transpose()
    }

    /// The newest records of a name, newest first.
    pub(crate) fn of_name(
        &self,
        name: &LeaseName,
        limit: usize,
    ) -> io::Result<Vec<pb::HistoryRecord>> {
        let mut next = self.newest(name.as_str())?;
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(record) = self.of_token(next)?
        {
            next = record.previous;
            found.push(record);
        }
        Ok(found)
    }

    /// Every record, in the order of tokens.
    pub(crate) fn all(&self) -> io::Result<impl Iterator<Item = io::Result<pb::HistoryRecord>>> {
        Ok(self.scan()?.map(|entry| decode(&entry?.1)))
    }

    pub(crate) fn count(&self) -> io::Result<u64> {
        let mut count = 0;
        for entry in self.scan()? {
            drop(entry?);
            count += 1;
        }
        self.check_error()?;
        Ok(count)
    }

    pub(crate) fn covered(&self) -> io::Result<Vec<(u64, u64)>> {
        let ranges = self.meta()?.covered;
        Ok(ranges
            .into_iter()
            .map(|range| (range.first, range.last))
            .collect())
    }

    /// What is covered neither here nor by `change` between the oldest entry that may still be
    /// known and `newest`.
    pub(crate) fn gaps(&self, change: &Change, newest: u64) -> io::Result<Vec<(u64, u64)>> {
        let from = self.meta()?.pruned + 1;
        Ok(ranges::gaps(&self.covered_with(change)?, from, newest))
    }

    /// What is covered here or by `change`.
    pub(crate) fn covered_with(&self, change: &Change) -> io::Result<Vec<(u64, u64)>> {
        let mut covered = self.covered()?;
        for (first, last) in change.covered() {
            ranges::add(&mut covered, *first, *last);
        }
        Ok(covered)
    }

    /// Writes a change in one step and says how many records are new.
    pub(crate) fn write(&self, change: Change) -> io::Result<u64> {
        let mut links = Links::of(self);
        let mut added = 0;
        // Newest first: see there.
        for (token, record) in change.records.into_iter().rev() {
            let known = match links.records.remove(&token) {
                Some(known) => Some(known),
                None => self.of_token(token)?,
            };
            match known {
                Some(mut known) => {
                    record::merge(&mut known, record);
                    links.records.insert(token, known);
                }
                None => {
                    added += 1;
                    links.put(record)?;
                }
            }
        }
        let mut batch = Batch::default();
        for (token, record) in links.records {
            batch.insert(&grant_key(token)[..], record.encode_to_vec());
        }
        for (name, token) in links.newest {
            batch.insert(newest_key(&name), &token.to_be_bytes()[..]);
        }
        let mut meta = self.meta()?;
        let mut covered: Vec<_> = meta.covered.iter().map(|r| (r.first, r.last)).collect();
        for (first, last) in change.covered {
            ranges::add(&mut covered, first, last);
        }
        meta.covered = to_pb(covered);
        meta.layout = LAYOUT;
        batch.insert(META, meta.encode_to_vec());
        self.db()?.apply_batch(batch)?;
        Ok(added)
    }

    /// Drops the oldest records, at most `count` of them, as long as `drop` wants it, and says how
    /// many went.
    pub(crate) fn prune(
        &self,
        count: usize,
        drop: impl Fn(&pb::HistoryRecord) -> bool,
    ) -> io::Result<u64> {
        let mut batch = Batch::default();
        let mut meta = self.meta()?;
        let mut dropped = 0;
        for entry in self.scan()?.take(count) {
            let (key, bytes) = entry?;
            let record = decode(&bytes)?;
            if !drop(&record) {
                break;
            }
            batch.remove(&key[..]);
            // What lay below it is gone already, so the chain just ends earlier.
            if self.newest(&record.name)? == record.token {
                batch.remove(newest_key(&record.name));
            }
            meta.pruned = meta.pruned.max(record.granted_index);
            dropped += 1;
        }
        self.check_error()?;
        if dropped == 0 {
            return Ok(0);
        }
        let covered: Vec<_> = meta.covered.iter().map(|r| (r.first, r.last)).collect();
        meta.covered = to_pb(ranges::within(&covered, meta.pruned + 1, u64::MAX));
        batch.insert(META, meta.encode_to_vec());
        self.db()?.apply_batch(batch)?;
        Ok(dropped)
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        let _one_flush = self.lock();
        self.check_error()?;
        self.db()?.flush().map(|_| ())
    }

    fn meta(&self) -> io::Result<pb::HistoryMeta> {
        match self.db()?.get(META)? {
            Some(bytes) => pb::HistoryMeta::decode(&bytes[..]).map_err(damage),
            None => Ok(pb::HistoryMeta::default()),
        }
    }
}

fn to_pb(ranges: Vec<(u64, u64)>) -> Vec<pb::IndexRange> {
    ranges
        .into_iter()
        .map(|(first, last)| pb::IndexRange { first, last })
        .collect()
}

fn decode(bytes: &[u8]) -> io::Result<pb::HistoryRecord> {
    pb::HistoryRecord::decode(bytes).map_err(damage)
}

fn grant_key(token: u64) -> [u8; 9] {
    let mut key = [GRANT; 9];
    key[1..].copy_from_slice(&token.to_be_bytes());
    key
}

fn newest_key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 1);
    key.push(NEWEST);
    key.extend_from_slice(name.as_bytes());
    key
}

impl Chains for Store {
    fn record(&self, token: u64) -> io::Result<Option<pb::HistoryRecord>> {
        self.of_token(token)
    }

    fn newest(&self, name: &str) -> io::Result<u64> {
        let token = self.db()?.get(newest_key(name))?;
        let token = token.and_then(|bytes| bytes.first_chunk().copied());
        Ok(token.map_or(0, u64::from_be_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(token: u64, name: &str) -> pb::HistoryRecord {
        pb::HistoryRecord {
            token,
            name: name.to_owned(),
            granted: bytes::Bytes::from_static(b"x"),
            granted_index: token,
            ..pb::HistoryRecord::default()
        }
    }

    fn tokens(store: &Store, name: &str, limit: usize) -> Vec<u64> {
        let name = LeaseName::parse(name).unwrap();
        let records = store.of_name(&name, limit).unwrap();
        records.iter().map(|record| record.token).collect()
    }

    #[test]
    fn a_name_leads_to_its_grants_newest_first_also_when_old_ones_come_late_or_go() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let mut change = Change::new();
        for token in [4, 5, 8, 9] {
            change.add(grant(token, if token % 2 == 0 { "even" } else { "odd" }));
        }
        assert_eq!(store.write(change).unwrap(), 4);
        let mut late = Change::new();
        for token in [2, 4, 6] {
            late.add(grant(token, "even"));
        }
        assert_eq!(store.write(late).unwrap(), 2);
        assert_eq!(tokens(&store, "even", 9), [8, 6, 4, 2]);
        assert_eq!(tokens(&store, "even", 2), [8, 6]);
        assert_eq!(tokens(&store, "odd", 9), [9, 5]);

        assert_eq!(store.prune(4, |_| true).unwrap(), 4);
        assert_eq!(tokens(&store, "even", 9), [8]);
        assert_eq!(store.prune(9, |record| record.token < 9).unwrap(), 1);
        assert_eq!(tokens(&store, "even", 9), []);
        assert_eq!(tokens(&store, "odd", 9), [9]);
    }

    #[test]
    fn an_index_of_another_layout_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store
            .db()
            .unwrap()
            .insert(&grant_key(1)[..], &b"old"[..])
            .unwrap();
        store.flush().unwrap();
        drop(store);
        assert!(Store::open(dir.path()).is_err());
    }
}
