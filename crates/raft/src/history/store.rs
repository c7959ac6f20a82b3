//! The index on disk.
//!
//! One tree, so that a batch is atomic: `g` and a token lead to a record; `n`, a name, a zero byte
//! and a token lead there by name; `m` is what the index says of itself.

use std::io;
use std::path::Path;

use prost::Message;
use ringfence_core::LeaseName;
use ringfence_proto::raft as pb;
use sled::{Batch, Config, Db};

use super::{ranges, record};

const CACHE_BYTES: usize = 32 << 20;
/// Entries in a leaf, which is written whole: a grant touches the leaf of its token, which all new
/// ones share, and the leaf of its name.
const LEAF: usize = 256;
/// The least effort of compression: it is most of what a write costs.
const COMPRESSION: i32 = 1;
const GRANT: u8 = b'g';
const NAME: u8 = b'n';
const META: &[u8] = b"m";

/// The index. Clones share it; each thread needs its own.
#[derive(Clone)]
pub(super) struct Store {
    db: Db<LEAF>,
}

/// Changes to be written in one step.
pub(super) struct Change {
    records: std::collections::BTreeMap<u64, pb::HistoryRecord>,
    covered: Vec<(u64, u64)>,
}

impl Change {
    pub(super) fn new() -> Self {
        Self {
            records: std::collections::BTreeMap::new(),
            covered: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, record: pb::HistoryRecord) {
        match self.records.entry(record.token) {
            std::collections::btree_map::Entry::Occupied(mut known) => {
                record::merge(known.get_mut(), record);
            }
            std::collections::btree_map::Entry::Vacant(free) => {
                let _ = free.insert(record);
            }
        }
    }

    pub(super) fn cover(&mut self, first: u64, last: u64) {
        ranges::add(&mut self.covered, first, last);
    }

    /// What it knows of a grant.
    pub(super) fn take(&mut self, token: u64) -> Option<pb::HistoryRecord> {
        self.records.remove(&token)
    }

    /// What it knows of other grants, newest first.
    pub(super) fn into_records(self) -> impl Iterator<Item = pb::HistoryRecord> {
        self.records.into_values().rev()
    }

    pub(super) fn covered(&self) -> &[(u64, u64)] {
        &self.covered
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.covered.is_empty()
    }
}

impl Store {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let config = Config::new()
            .path(path)
            .cache_capacity_bytes(CACHE_BYTES)
            .zstd_compression_level(COMPRESSION)
            // Flushed by hand, after each write.
            .flush_every_ms(None);
        let db: Db<LEAF> = config.open()?;
        let store = Self { db };
        drop(store.meta()?);
        Ok(store)
    }

    pub(super) fn of_token(&self, token: u64) -> io::Result<Option<pb::HistoryRecord>> {
        self.db
            .get(grant_key(token))?
            .map(|bytes| decode(&bytes))
            .transpose()
    }

    /// The newest records of a name, newest first.
    pub(super) fn of_name(
        &self,
        name: &LeaseName,
        limit: usize,
    ) -> io::Result<Vec<pb::HistoryRecord>> {
        let prefix = name_key(&name.to_string(), 0);
        let prefix = &prefix[..prefix.len() - 8];
        let mut found = Vec::new();
        for entry in self.db.scan_prefix(prefix).rev().take(limit) {
            let (key, _) = entry?;
            let token = key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            let record = token
                .map(|token| self.of_token(token))
                .transpose()?
                .flatten();
            found.extend(record);
        }
        Ok(found)
    }

    /// Every record, in the order of tokens.
    pub(super) fn all(&self) -> impl Iterator<Item = io::Result<pb::HistoryRecord>> {
        self.db.scan_prefix([GRANT]).map(|entry| decode(&entry?.1))
    }

    pub(super) fn count(&self) -> u64 {
        self.db.scan_prefix([GRANT]).count() as u64
    }

    pub(super) fn covered(&self) -> io::Result<Vec<(u64, u64)>> {
        let ranges = self.meta()?.covered;
        Ok(ranges
            .into_iter()
            .map(|range| (range.first, range.last))
            .collect())
    }

    /// What is covered neither here nor by `change` between the oldest entry that may still be
    /// known and `newest`.
    pub(super) fn gaps(&self, change: &Change, newest: u64) -> io::Result<Vec<(u64, u64)>> {
        let from = self.meta()?.pruned + 1;
        Ok(ranges::gaps(&self.covered_with(change)?, from, newest))
    }

    /// What is covered here or by `change`.
    pub(super) fn covered_with(&self, change: &Change) -> io::Result<Vec<(u64, u64)>> {
        let mut covered = self.covered()?;
        for (first, last) in change.covered() {
            ranges::add(&mut covered, *first, *last);
        }
        Ok(covered)
    }

    /// Writes a change in one step and says how many records are new.
    pub(super) fn write(&self, change: Change) -> io::Result<u64> {
        let mut batch = Batch::default();
        let mut added = 0;
        for (token, record) in change.records {
            let record = match self.of_token(token)? {
                Some(mut known) => {
                    record::merge(&mut known, record);
                    known
                }
                None => {
                    added += 1;
                    record
                }
            };
            batch.insert(&name_key(&record.name, token)[..], &[][..]);
            batch.insert(&grant_key(token)[..], record.encode_to_vec());
        }
        let mut meta = self.meta()?;
        let mut covered: Vec<_> = meta.covered.iter().map(|r| (r.first, r.last)).collect();
        for (first, last) in change.covered {
            ranges::add(&mut covered, first, last);
        }
        meta.covered = to_pb(covered);
        batch.insert(META, meta.encode_to_vec());
        self.db.apply_batch(batch)?;
        Ok(added)
    }

    /// Drops the oldest records, at most `count` of them, as long as `drop` wants it, and says how
    /// many went.
    pub(super) fn prune(
        &self,
        count: usize,
        drop: impl Fn(&pb::HistoryRecord) -> bool,
    ) -> io::Result<u64> {
        let mut batch = Batch::default();
        let mut meta = self.meta()?;
        let mut dropped = 0;
        for entry in self.db.scan_prefix([GRANT]).take(count) {
            let (key, bytes) = entry?;
            let record = decode(&bytes)?;
            if !drop(&record) {
                break;
            }
            batch.remove(&key[..]);
            batch.remove(&name_key(&record.name, record.token)[..]);
            meta.pruned = meta.pruned.max(record.granted_index);
            dropped += 1;
        }
        if dropped == 0 {
            return Ok(0);
        }
        let covered: Vec<_> = meta.covered.iter().map(|r| (r.first, r.last)).collect();
        meta.covered = to_pb(ranges::within(&covered, meta.pruned + 1, u64::MAX));
        batch.insert(META, meta.encode_to_vec());
        self.db.apply_batch(batch)?;
        Ok(dropped)
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.db.flush().map(|_| ())
    }

    fn meta(&self) -> io::Result<pb::HistoryMeta> {
        match self.db.get(META)? {
            Some(bytes) => pb::HistoryMeta::decode(&bytes[..]).map_err(io::Error::other),
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
    pb::HistoryRecord::decode(bytes).map_err(io::Error::other)
}

fn grant_key(token: u64) -> [u8; 9] {
    let mut key = [GRANT; 9];
    key[1..].copy_from_slice(&token.to_be_bytes());
    key
}

fn name_key(name: &str, token: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 10);
    key.push(NAME);
    key.extend_from_slice(name.as_bytes());
    // Names hold no zero byte, so no name's keys lie among another's.
    key.push(0);
    key.extend_from_slice(&token.to_be_bytes());
    key
}
