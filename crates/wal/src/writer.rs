//! The synchronous heart: calls in, batches out, callbacks completed.
//!
//! It starts no thread and never waits for anything but the file system, so that a test can
//! drive it step by step. [`crate::Wal`] runs it on a thread of its own.

mod calls;

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use ringfence_planted::{Bug, planted};

use crate::call::Call;
use crate::clock;
use crate::format::{Batch, Kind, MARKS_RECORD_MAX, RECORD_HEAD, Record};
use crate::fs::FsLock;
use crate::index::{Index, IndexOp, Loc};
use crate::marks::Marks;
use crate::options::OnFatal;
use crate::recover::Written;
use crate::segment::Segment;
use crate::spares::Spares;
use crate::stats::Counters;
use crate::{Done, EntryId, LogEntry, MAX_MARK_BYTES, OpenError, WalError};

/// A batch is written when it has this many bytes, even if more has queued: it bounds the memory,
/// and how long the first caller waits for the last.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Memory that the batch buffer keeps between batches.
const KEEP_BYTES: usize = 8 * 1024 * 1024;

/// What readers on other threads need.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) index: RwLock<Index>,
    pub(crate) counters: Counters,
}

/// A log without threads: nothing is written before [`Writer::flush`], or before a batch is full.
///
/// Meant for tests that crash it at a chosen step; everything else takes [`crate::Wal`].
pub struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) spares: Spares,
    /// Full segments, oldest first.
    pub(crate) full: VecDeque<Written>,
    pub(crate) active: Segment,
    /// The greatest index of any entry record in the active segment.
    pub(crate) active_greatest: Option<u64>,
    /// The byte in the active segment at which the next batch goes.
    pub(crate) offset: u64,
    /// The number of the next batch.
    pub(crate) number: u64,
    pub(crate) batch: Batch,
    /// Index changes of the batch.
    pub(crate) ops: Vec<IndexOp>,
    /// Callbacks of the batch, oldest first.
    pub(crate) dones: Vec<Done>,
    pub(crate) entries_in_batch: u64,
    /// The state that all records so far, with those of the batch, describe.
    pub(crate) marks: Marks,
    /// A committed mark that waits for its entry.
    pub(crate) pending: Option<(u64, Vec<u8>)>,
    /// Calls that wait for room on the file system, in their order. Nothing overtakes them.
    pub(crate) stalled: VecDeque<Call>,
    pub(crate) poison: Option<Arc<WalError>>,
    pub(crate) on_fatal: OnFatal,
    pub(crate) entry_limit: u64,
    /// Size of new segments in bytes; existing ones keep theirs.
    pub(crate) segment_bytes: u64,
    pub(crate) spare_segments: usize,
    /// Held until the log is closed; the last field, so that the spare thread has ended before.
    pub(crate) _lock: FsLock,
}

impl Writer {
    /// Adds entries; see [`crate::Wal::append`].
    pub fn append(&mut self, entries: Vec<LogEntry>, done: Done) {
        self.take(Call::Append(entries, done));
    }

    /// Adds a vote; see [`crate::Wal::save_vote`].
    pub fn save_vote(&mut self, vote: Vec<u8>, done: Done) {
        self.take(Call::Vote(vote, done));
    }

    /// Offers a committed mark; see [`crate::Wal::save_committed`].
    ///
    /// # Panics
    /// If the mark is longer than [`MAX_MARK_BYTES`].
    pub fn save_committed(&mut self, index: u64, mark: Vec<u8>) {
        assert!(
            mark.len() <= MAX_MARK_BYTES,
            "a committed mark of {} bytes",
            mark.len()
        );
        self.pending = Some((index, mark));
    }

    /// Removes all entries behind `last_kept`; see [`crate::Wal::truncate_after`].
    pub fn truncate_after(&mut self, last_kept: Option<EntryId>) {
        self.take(Call::Truncate(last_kept, None));
    }

    /// Releases entries up to `upto`, inclusive; see [`crate::Wal::purge`].
    pub fn purge(&mut self, upto: EntryId) {
        self.take(Call::Purge(upto));
    }

    /// Writes what was added as one batch, makes it durable, and completes the callbacks,
    /// newest first. Then recycles the segments that a purge emptied. Calls that wait for room are
    /// tried again before.
    pub fn flush(&mut self) {
        self.resume();
        self.write_out();
    }

    /// The same, without the calls that wait for room.
    pub(crate) fn write_out(&mut self) {
        // A failure has poisoned the log, and every call that waits was notified.
        if self.commit().is_ok() {
            self.recycle();
        }
    }

    /// Flushes and seals the log, so that the next open takes nothing unreadable for a torn tail.
    pub fn close(mut self) {
        self.seal();
    }

    /// The same, where the writer stays.
    pub(crate) fn seal(&mut self) {
        self.flush();
        for call in std::mem::take(&mut self.stalled) {
            call.refuse(&WalError::Closed);
        }
        // A failure here has notified `on_fatal`; no other caller waits. Without room, the next
        // open has to look for the end of the log on its own.
        let sealed = self
            .commit_pending()
            .and_then(|()| self.checkpoint())
            .and_then(|()| self.commit());
        drop(sealed);
    }

    /// Returns what readers need.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Lets a thread prepare segments ahead.
    pub(crate) fn with_spare_thread(mut self) -> Result<Self, OpenError> {
        self.spares = self
            .spares
            .into_thread(self.spare_segments)
            .map_err(|source| OpenError::Thread {
                name: "wal-spares",
                source,
            })?;
        Ok(self)
    }

    /// Adds a record to the batch, after making room for it.
    fn push(&mut self, record: Record<'_>) -> Result<Loc, WalError> {
        self.alive()?;
        // Room is kept for the committed mark that may join when the batch is written.
        let need = RECORD_HEAD + record.payload.len() + MARKS_RECORD_MAX;
        if !self.batch.is_empty() && self.batch.disk_len(need) > BATCH_BYTES as u64 {
            self.commit()?;
        }
        // More than once only after `segment_bytes` was raised: the next may be an old, small one.
        while self.offset + self.batch.disk_len(need) > self.active.bytes {
            self.roll()?;
        }
        Ok(self.place(record))
    }

    /// Adds a record that is known to fit.
    fn place(&mut self, record: Record<'_>) -> Loc {
        let (at, len) = self.batch.push(self.active.seed, record);
        Loc {
            segment: self.active.sequence,
            offset: (self.offset + at as u64) as u32,
            len: len as u32,
        }
    }

    /// Adds everything but the entries as one record.
    pub(crate) fn checkpoint(&mut self) -> Result<(), WalError> {
        let payload = self.marks.encode();
        let rolled = self.active.sequence;
        let need = RECORD_HEAD + payload.len() + MARKS_RECORD_MAX;
        if self.offset + self.batch.disk_len(need) > self.active.bytes {
            self.alive()?;
            self.roll()?;
        }
        // A new segment has begun with a checkpoint of its own.
        if rolled == self.active.sequence {
            self.push(Record {
                kind: Kind::Checkpoint,
                id: NO_ID,
                payload: &payload,
            })?;
        }
        Ok(())
    }

    /// Goes on in the next segment, which begins with a checkpoint.
    pub(crate) fn roll(&mut self) -> Result<(), WalError> {
        self.commit()?;
        let next = match self.spares.take() {
            Ok(next) => next,
            // It has promised nothing to any caller: the one that needs the room waits for it.
            Err(error) if error.may_pass() && !planted(Bug::FullDiskIsFatal) => {
                return Err(error);
            }
            Err(error) => return Err(self.fail(error)),
        };
        self.write_index().add_segment(next.clone());
        let segment = std::mem::replace(&mut self.active, next);
        self.full.push_back(Written {
            segment,
            greatest: self.active_greatest.take(),
        });
        self.offset = self.active.block;
        let left = self.active.bytes - self.offset;
        self.shared.counters.left(left);
        self.batch.set_block(self.active.block);
        let payload = self.marks.encode();
        self.place(Record {
            kind: Kind::Checkpoint,
            id: NO_ID,
            payload: &payload,
        });
        Ok(())
    }

    /// Adds the committed mark that waits, if its entry is in the log.
    fn commit_pending(&mut self) -> Result<(), WalError> {
        self.alive()?;
        let last = self.marks.last.map(|id| id.index);
        if let Some((index, mark)) = self.pending.take_if(|(index, _)| Some(*index) <= last) {
            let id = EntryId { term: 0, index };
            if self.batch.is_empty() {
                let record = Record {
                    kind: Kind::Committed,
                    id,
                    payload: &mark,
                };
                if let Err(error) = self.push(record) {
                    self.pending = Some((index, mark));
                    return Err(error);
                }
            } else {
                self.place(Record {
                    kind: Kind::Committed,
                    id,
                    payload: &mark,
                });
            }
            self.marks.committed = Some((index, mark));
        }
        Ok(())
    }

    /// Writes the batch, makes it durable and completes its callbacks.
    pub(crate) fn commit(&mut self) -> Result<(), WalError> {
        match self.write_batch()? {
            Some(written) => self.sync_batch(written),
            None => Ok(()),
        }
    }

    /// Writes the batch, if there is one. Nothing is durable before [`Writer::sync_batch`], and
    /// nothing else may be asked of the writer in between.
    pub(crate) fn write_batch(&mut self) -> Result<Option<WrittenBatch>, WalError> {
        self.alive()?;
        if self.batch.is_empty() {
            return Ok(None);
        }
        self.commit_pending()?;
        let bytes = self
            .batch
            .finish(self.active.seed, self.number, self.offset);
        let len = bytes.len() as u64;
        let path = &self.active.path;
        let written = self.active.file.write_at(bytes, self.offset);
        let written = written.map_err(|e| WalError::io("write", path, e));
        written.map_err(|error| self.fail(error))?;
        Ok(Some(WrittenBatch { len }))
    }

    /// Makes the batch that was just written durable and completes its callbacks.
    pub(crate) fn sync_batch(&mut self, written: WrittenBatch) -> Result<(), WalError> {
        let WrittenBatch { len } = written;
        let begun = clock::now();
        if planted(Bug::AckBeforeSync) {
            while let Some(done) = self.dones.pop() {
                done(Ok(()));
            }
        }
        let synced = self.active.file.sync_data();
        let synced = synced.map_err(|e| WalError::io("sync", &self.active.path, e));
        if let Err(error) = synced
            && !planted(Bug::SyncErrorBelieved)
        {
            return Err(self.fail(error));
        }
        self.shared.counters.synced(len, begun.elapsed());
        self.shared
            .counters
            .appended(std::mem::take(&mut self.entries_in_batch));
        self.number += 1;
        self.offset += len;
        let left = self.active.bytes.saturating_sub(self.offset);
        self.shared.counters.left(left);
        self.batch.clear(KEEP_BYTES);
        {
            let mut index = self
                .shared
                .index
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            self.ops.drain(..).for_each(|op| index.apply(op));
        }
        self.shared
            .counters
            .live_segments(self.full.len() as u64 + 1);
        // The newest first: a caller that keeps a watermark is then woken once, not once a call.
        while let Some(done) = self.dones.pop() {
            done(Ok(()));
        }
        Ok(())
    }

    /// Prepares a segment ahead where no thread does.
    pub(crate) fn prepare_ahead(&mut self) {
        if self.poison.is_none() {
            self.spares.prepare_ahead(self.spare_segments);
        }
    }

    /// Gives back the oldest segments as long as every entry in them is durably purged.
    pub(crate) fn recycle(&mut self) {
        let purged = self.marks.purged.map(|id| id.index);
        while self
            .full
            .front()
            .is_some_and(|written| written.greatest <= purged)
        {
            let Some(written) = self.full.pop_front() else {
                break;
            };
            self.write_index().remove_segment(written.segment.sequence);
            if let Err(error) = self.spares.retire(written.segment) {
                self.fail(error);
                break;
            }
            self.shared
                .counters
                .live_segments(self.full.len() as u64 + 1);
        }
    }

    fn alive(&self) -> Result<(), WalError> {
        match &self.poison {
            Some(cause) => Err(WalError::Poisoned(Arc::clone(cause))),
            None => Ok(()),
        }
    }

    /// Stops the log for good: tells the hook first, so that a process that is to end does so
    /// before anybody acts on the failure, then every call that waits.
    fn fail(&mut self, error: WalError) -> WalError {
        self.poison = Some(Arc::new(error.clone()));
        (self.on_fatal)(&error);
        while let Some(done) = self.dones.pop() {
            done(Err(error.clone()));
        }
        for call in std::mem::take(&mut self.stalled) {
            call.refuse(&error);
        }
        error
    }

    fn write_index(&self) -> std::sync::RwLockWriteGuard<'_, Index> {
        self.shared
            .index
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch that the file has and the medium may not have.
#[must_use]
pub(crate) struct WrittenBatch {
    /// Its bytes, with padding.
    len: u64,
}

/// The id of records that carry none.
const NO_ID: EntryId = EntryId { term: 0, index: 0 };

trait MaxByIndex {
    fn max_by_index(self, other: Self) -> Self;
}

impl MaxByIndex for Option<EntryId> {
    fn max_by_index(self, other: Self) -> Self {
        if self.map(|id| id.index) >= other.map(|id| id.index) {
            self
        } else {
            other
        }
    }
}
