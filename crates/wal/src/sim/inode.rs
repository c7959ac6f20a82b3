//! One file's content: what a process sees of it, and what the medium holds.

use std::collections::BTreeSet;

use super::crash::Crash;
use super::random::Random;

/// The unit in which unsynced content survives or is lost, in bytes.
const SECTOR: usize = 512;
/// The unit in which the kernel writes files back, in bytes. A write that power cut off may leave
/// garbage anywhere in the pages that it touched, also where nothing was changed.
const PAGE: usize = 4096;

/// Content of one file: what a process reads, and what would survive a crash.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    /// What a process reads.
    pub(super) seen: Vec<u8>,
    /// What the medium holds.
    durable: Vec<u8>,
    /// Pages written since the last sync.
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
            self.dirty.extend(offset / PAGE..=(end - 1) / PAGE);
        }
    }

    pub(super) fn set_len(&mut self, bytes: usize) {
        self.seen.resize(bytes, 0);
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.seen.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            copy(&self.seen, &mut self.durable, page * PAGE, PAGE);
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
        for page in &self.dirty {
            copy(&seen, &mut self.seen, page * PAGE, PAGE);
        }
    }

    /// Changes a byte on the medium and in the cache.
    pub(super) fn flip(&mut self, offset: usize, mask: u8) {
        self.seen[offset] ^= mask;
        if let Some(byte) = self.durable.get_mut(offset) {
            *byte ^= mask;
        }
    }

    /// Loses what was not synced, as `crash` has it.
    pub(super) fn crash(&mut self, crash: Crash, random: &mut Random) {
        let keep_len = crash != Crash::LoseAll && random.coin();
        let mut after = self.durable.clone();
        if keep_len {
            after.resize(self.seen.len(), 0);
        }
        for page in std::mem::take(&mut self.dirty) {
            let begin = page * PAGE;
            match crash {
                Crash::LoseAll | Crash::ProcessOnly => {}
                Crash::Garble(_) if random.next().is_multiple_of(3) => {
                    let end = (begin + PAGE).min(self.seen.len());
                    let mut garbage = self.seen.clone();
                    garbage[begin.min(end)..end].fill_with(|| random.next() as u8);
                    copy(&garbage, &mut after, begin, PAGE);
                }
                Crash::Subset(_) | Crash::Garble(_) => {
                    for sector in (begin..begin + PAGE).step_by(SECTOR) {
                        if random.coin() {
                            copy(&self.seen, &mut after, sector, SECTOR);
                        }
                    }
                }
            }
        }
        self.seen.clone_from(&after);
        self.durable = after;
    }
}

/// Copies at most `bytes` bytes from `begin`, lengthening `to` if it ends before, but never beyond
/// `from`.
fn copy(from: &[u8], to: &mut Vec<u8>, begin: usize, bytes: usize) {
    let end = (begin + bytes).min(from.len());
    if begin >= end {
        return;
    }
    if to.len() < end {
        to.resize(end, 0);
    }
    to[begin..end].copy_from_slice(&from[begin..end]);
}
