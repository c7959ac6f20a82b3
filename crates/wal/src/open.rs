//! Opening a log: lock it, read it back, and cover what was read with a batch of its own.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, RwLock};

use crate::format::{Batch, MARKS_RECORD_MAX};
use crate::fs::{Fs, FsLock};
use crate::index::{Index, IndexOp};
use crate::prepare::Preparer;
use crate::recover::{Found, Written, recover};
use crate::segment::SECTOR;
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
        let found = recover(fs.as_ref(), dir, &options.header)?;
        let last_sequence = found.ready.back().map(|segment| segment.sequence);
        let last_sequence =
            last_sequence.or(found.written.back().map(|written| written.segment.sequence));
        let preparer = Preparer {
            fs,
            dir: dir.to_owned(),
            identity: options.header,
            salt: options.salt,
            segment_bytes: options.segment_bytes,
            next_sequence: last_sequence.map_or(1, |sequence| sequence + 1),
            next_file: found.next_file,
            free: found.free.iter().cloned().collect(),
            broken: None,
        };
        let overhead = SECTOR * 2 + 3 * MARKS_RECORD_MAX as u64;
        let (mut writer, recovered) = Self::assemble(found, preparer, lock)?;
        writer.entry_limit = MAX_ENTRY_BYTES.min(options.segment_bytes - overhead);
        writer.spare_segments = options.spare_segments;
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
        let mut spares = Spares::Inline {
            preparer,
            ready: found.ready,
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
            entries: Vec::with_capacity(found.replay.entries.len()),
            truncated_tail_bytes: found.torn_bytes,
        };
        for (entry, loc) in found.replay.entries {
            index.apply(IndexOp::Push(entry.id.index, loc));
            recovered.entries.push(entry);
        }
        let writer = Self {
            shared: Arc::new(Shared {
                index: RwLock::new(index),
                counters: Counters::default(),
            }),
            spares,
            full: found.written,
            active: active.segment,
            active_greatest: active.greatest,
            offset: found.next_offset,
            number: found.next_number,
            batch: Batch::default(),
            ops: Vec::new(),
            dones: Vec::new(),
            entries_in_batch: 0,
            marks,
            pending: None,
            poison: None,
            // Until the log is open, a failure is the answer to whoever opens it.
            on_fatal: Box::new(|_| {}),
            entry_limit: MAX_ENTRY_BYTES,
            spare_segments: 1,
            _lock: lock,
        };
        Ok((writer, recovered))
    }
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
