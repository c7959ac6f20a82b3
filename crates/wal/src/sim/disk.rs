//! What a medium holds, and what a process sees of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::files::Crash;
use super::random::Random;

/// The unit in which unsynced content survives or is lost, in bytes.
const SECTOR: usize = 512;

/// One file's content.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    /// What a process reads.
    pub(super) seen: Vec<u8>,
    /// What the medium holds.
    durable: Vec<u8>,
    /// Sectors written since the last sync.
    dirty: BTreeSet<usize>,
}

impl Inode {
    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if self.seen.len() < end {
            self.seen.resize(end, 0);
        }
        self.seen[offset..end].copy_from_slice(bytes);
        if end > offset {
            self.dirty.extend(offset / SECTOR..=(end - 1) / SECTOR);
        }
    }

    pub(super) fn set_len(&mut self, bytes: usize) {
        self.seen.resize(bytes, 0);
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.seen.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            copy_sector(&self.seen, &mut self.durable, sector);
        }
    }

    /// A sync that failed: the pages count as clean, and never reached the medium.
    pub(super) fn lose_sync(&mut self) {
        self.dirty.clear();
    }

    /// The next read shows the medium, but for what was written since the last sync.
    pub(super) fn drop_cache(&mut self) {
        let seen = std::mem::replace(&mut self.seen, self.durable.clone());
        self.seen.resize(seen.len(), 0);
        for sector in &self.dirty {
            copy_sector(&seen, &mut self.seen, *sector);
        }
    }

    /// Changes a byte on the medium and in the cache.
    pub(super) fn flip(&mut self, offset: usize, mask: u8) {
        self.seen[offset] ^= mask;
        if let Some(byte) = self.durable.get_mut(offset) {
            *byte ^= mask;
        }
    }

    fn crash(&mut self, crash: Crash, random: &mut Random) {
        let keep_len = crash != Crash::LoseAll && random.coin();
        let mut after = self.durable.clone();
        if keep_len {
            after.resize(self.seen.len(), 0);
        }
        for &sector in &self.dirty {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(self.seen.len());
            match crash {
                Crash::LoseAll | Crash::ProcessOnly => {}
                Crash::Garble(_) if random.next().is_multiple_of(3) => {
                    let mut garbage = self.seen.clone();
                    garbage[range].fill_with(|| random.next() as u8);
                    copy_sector(&garbage, &mut after, sector);
                }
                Crash::Subset(_) | Crash::Garble(_) => {
                    if random.coin() {
                        copy_sector(&self.seen, &mut after, sector);
                    }
                }
            }
        }
        self.dirty.clear();
        self.seen.clone_from(&after);
        self.durable = after;
    }
}

/// Copies one sector, lengthening `to` if it ends before, but never beyond `from`.
fn copy_sector(from: &[u8], to: &mut Vec<u8>, sector: usize) {
    let begin = sector * SECTOR;
    let end = (begin + SECTOR).min(from.len());
    if begin >= end {
        return;
    }
    if to.len() < end {
        to.resize(end, 0);
    }
    to[begin..end].copy_from_slice(&from[begin..end]);
}

/// A change of names that is not durable yet.
#[derive(Debug, Clone)]
enum NameOp {
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

/// All files of one medium, and their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) inodes: Vec<Inode>,
    /// The names a process sees.
    pub(super) names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending: Vec<NameOp>,
    /// The greatest sum of all lengths, in bytes.
    pub(super) capacity: Option<u64>,
}

impl Disk {
    pub(super) fn create(&mut self, path: &Path) -> usize {
        let inode = self.inodes.len();
        self.inodes.push(Inode::default());
        self.change(NameOp::Link(path.to_owned(), inode));
        inode
    }

    pub(super) fn unlink(&mut self, path: &Path) {
        self.change(NameOp::Unlink(path.to_owned()));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        self.change(NameOp::Rename(from.to_owned(), to.to_owned()));
    }

    pub(super) fn sync_names(&mut self) {
        self.durable_names.clone_from(&self.names);
        self.pending.clear();
    }

    /// Returns true if `more` bytes still fit.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.capacity
            .is_none_or(|capacity| (self.used() + more) as u64 <= capacity)
    }

    /// The sum of all lengths.
    pub(super) fn used(&self) -> usize {
        let lengths = self.names.values();
        lengths.map(|inode| self.inodes[*inode].seen.len()).sum()
    }

    /// Loses what was not durable, as `crash` has it.
    pub(super) fn crash(&mut self, crash: Crash) {
        let mut random = Random(match crash {
            Crash::ProcessOnly => return,
            Crash::LoseAll => 0,
            Crash::Subset(seed) | Crash::Garble(seed) => seed,
        });
        for op in std::mem::take(&mut self.pending) {
            if crash != Crash::LoseAll && random.coin() {
                apply(&mut self.durable_names, &op);
            }
        }
        self.names.clone_from(&self.durable_names);
        self.inodes
            .iter_mut()
            .for_each(|inode| inode.crash(crash, &mut random));
    }

    fn change(&mut self, op: NameOp) {
        apply(&mut self.names, &op);
        self.pending.push(op);
    }
}

/// A change whose subject did not survive changes nothing.
fn apply(names: &mut BTreeMap<PathBuf, usize>, op: &NameOp) {
    match op {
        NameOp::Link(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        NameOp::Unlink(path) => {
            names.remove(path);
        }
        NameOp::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}
