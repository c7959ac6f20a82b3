//! Opening a log: lock it, read it back, and cover what was read with a batch of its own.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, RwLock};

use ringfence_planted::{Bug, planted};

use crate::format::{BATCH_HEAD, Batch, MARKS_RECORD_MAX, RECORD_HEAD};
use crate::fs::{Fs, FsLock};
use crate::index::{Index, IndexOp};
use crate::prepare::Preparer;
use crate::recover::{Found, Written, recover};
use crate::segment::{BLOCK, MAX_BLOCK, SECTOR};
use crate::spares::Spares;
use crate::stats::Counters;
use crate::writer::{Shared, Writer};
use crate::{MAX_ENTRY_BYTES, OpenError, Options, Recovered};

impl Writer {
    /// Opens the log in `dir`, cutting a torn tail.
    ///
    /// # Errors
    /// [`OpenError`]: a bad option, a directory that cannot be used or is in use, another
    /// identity, or damage.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        options: Options,
    ) -> Result<(Self, Recovered), OpenError> {
        options.validate()?;
        let lock = lock(fs.as_ref(), dir)?;
        let mut found = recover(fs.as_ref(), dir, &options.header, options.recover_bytes)?;
        if options.existing && found.next_number == 1 && !planted(Bug::EmptyLogAccepted) {
            return Err(OpenError::Missing(dir.to_owned()));
        }
        let block = block(fs.as_ref(), dir, options.segment_bytes);
        // Blocks of an older version, or of another device: what is written from here on gets
        // segments of its own.
        let mut small = Vec::new();
        while found.ready.back().is_some_and(|spare| spare.block < block) {
            small.extend(found.ready.pop_back());
        }
        let last_sequence = found.ready.back().map(|segment| segment.sequence);
        let last_sequence =
            last_sequence.or(found.written.back().map(|written| written.segment.sequence));
        let mut preparer = Preparer {
            fs,
            dir: dir.to_owned(),
            identity: options.header,
            salt: options.salt,
            segment_bytes: options.segment_bytes,
            block,
            next_sequence: last_sequence.map_or(1, |sequence| sequence + 1),
            next_file: found.next_file,
            free: found.free.iter().cloned().collect(),
            broken: None,
            owes_sync: false,
            named: None,
            surplus: Vec::new(),
            counters: Arc::default(),
            on_spare: options.on_spare,
            failing: false,
        };
        // The newest first, so that a crash in between leaves no hole.
        for spare in small {
            preparer.retire(&spare, &mut || ControlFlow::Continue(()))?;
        }
        let (mut writer, recovered) = Self::assemble(found, preparer, lock)?;
        writer.segment_bytes = options.segment_bytes;
        writer.entry_limit = MAX_ENTRY_BYTES.min(entry_limit(options.segment_bytes, block));
        writer.spare_segments = options.spare_segments;
        if writer.active.block < block {
            writer.roll()?;
        }
        // What was read back is covered by a batch of its own before anything is built on it:
        // from here on, an unreadable byte in it is damage and not a torn tail.
        writer.checkpoint().and_then(|()| writer.commit())?;
        writer.on_fatal = options.on_fatal;
        Ok((writer, recovered))
    }

    fn assemble(
        mut found: Found,
        preparer: Preparer,
        lock: FsLock,
    ) -> Result<(Self, Recovered), OpenError> {
        let log_bytes = found.log_bytes();
        preparer.counters.ready(found.ready.len());
        let counters = Counters::new(Arc::clone(&preparer.counters));
        let mut spares = Spares::Inline {
            preparer: Box::new(preparer),
            ready: found.ready,
            retired: VecDeque::new(),
        };
        let active = match found.written.pop_back() {
            Some(written) => written,
            None => Written {
                segment: spares.take()?,
                greatest: None,
            },
        };
        let mut index = Index::default();
        for written in found.written.iter().chain([&active]) {
            index.add_segment(written.segment.clone());
        }
        let marks = found.replay.marks;
        let mut recovered = Recovered {
            vote: marks.vote.clone(),
            committed: marks.committed.clone().map(|(_, mark)| mark),
            purged: marks.purged,
            last: marks.last,
            entries: found.replay.newest.into(),
            live_bytes: 0,
            log_bytes,
            truncated_tail_bytes: found.torn_bytes,
        };
        for (id, loc) in found.replay.places {
            index.apply(IndexOp::Push(id.index, loc));
        }
        recovered.live_bytes = index.live_bytes();
        let mut batch = Batch::default();
        batch.set_block(active.segment.block);
        let next_offset = match found.next_number {
            1 => active.segment.block,
            _ => found.next_offset,
        };
        let writer = Self {
            shared: Arc::new(Shared {
                index: RwLock::new(index),
                counters,
            }),
            spares,
            full: found.written,
            active: active.segment,
            active_greatest: active.greatest,
            offset: next_offset,
            number: found.next_number,
            batch,
            ops: Vec::new(),
            dones: Vec::new(),
            entries_in_batch: 0,
            marks,
            pending: None,
            stalled: VecDeque::new(),
            poison: None,
            // Until the log is open, a failure is the answer to the caller that opens it.
            on_fatal: Box::new(|_| {}),
            entry_limit: MAX_ENTRY_BYTES,
            segment_bytes: 0,
            spare_segments: 1,
            _lock: lock,
        };
        Ok((writer, recovered))
    }
}

/// The block of new segments: the device's, unless too few would fit in a segment.
fn block(fs: &dyn Fs, dir: &Path, segment_bytes: u64) -> u64 {
    if planted(Bug::BatchesSharePages) {
        return SECTOR;
    }
    let mut block = fs.block_bytes(dir).next_power_of_two();
    block = block.clamp(BLOCK, MAX_BLOCK);
    while block > BLOCK && segment_bytes < block * 16 {
        block /= 2;
    }
    block
}

/// The longest payload that fits in a segment: behind the header stands a batch with a checkpoint,
/// the entry, and the committed mark that may join.
fn entry_limit(segment_bytes: u64, block: u64) -> u64 {
    let room = (segment_bytes - block) / block * block;
    room - (BATCH_HEAD + RECORD_HEAD + 2 * MARKS_RECORD_MAX) as u64
}

/// Takes the lock of the log in `dir`.
pub(crate) fn lock(fs: &dyn Fs, dir: &Path) -> Result<FsLock, OpenError> {
    let path = dir.join("lock");
    match fs.lock(&path) {
        Ok(FsLock::Busy(holder)) => Err(OpenError::Locked {
            path: dir.to_owned(),
            holder,
        }),
        Ok(held) => Ok(held),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(OpenError::NotADirectory {
                path: dir.to_owned(),
            })
        }
        Err(error) => Err(OpenError::io("lock", &path, error)),
    }
}
