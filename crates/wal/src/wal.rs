//! The handle that callers hold, and the thread behind it.

use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLockReadGuard};
use std::thread::JoinHandle;

use crate::call::{Call, CommittedSlot};
use crate::fs::Fs;
use crate::index::Index;
use crate::read::read_entries;
use crate::work::{StepDriver, Work};
use crate::writer::{Shared, Writer};
use crate::{
    Done, EntryId, LogEntry, MAX_MARK_BYTES, OpenError, Options, RealFs, Recovered, WalError,
    WalStats,
};

/// The most that one read takes from disk at once, in bytes of records, unless a single record is
/// longer.
const READ_BYTES: u64 = 1024 * 1024;

/// Notified of every call, where no thread waits for them.
pub(crate) type Waker = Box<dyn Fn() + Send + Sync>;

/// An open log, written by a thread named `wal`.
///
/// Calls take effect in the order in which they were made. Dropping the handle closes the log
/// as [`Wal::close`] does.
pub struct Wal {
    calls: Sender<Call>,
    committed: CommittedSlot,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    entry_limit: u64,
    segment_bytes: u64,
    /// Set if a caller takes the steps of the work instead of the thread.
    stepped: Option<(Waker, Arc<Mutex<Work>>)>,
}

impl Wal {
    /// Opens the log in the directory `dir`, which must exist, cutting a torn tail.
    ///
    /// # Errors
    /// [`OpenError`]: a bad option, a directory that cannot be used or is in use, another
    /// identity, or damage.
    pub fn open(dir: &Path, options: Options) -> Result<(Self, Recovered), OpenError> {
        Self::open_in(Arc::new(RealFs), dir, options)
    }

    /// Opens a log on any file system.
    ///
    /// # Errors
    /// As [`Wal::open`].
    pub fn open_in(
        fs: Arc<dyn Fs>,
        dir: &Path,
        options: Options,
    ) -> Result<(Self, Recovered), OpenError> {
        let (writer, recovered) = Writer::open(fs, dir, options)?;
        let writer = writer.with_spare_thread()?;
        let (mut wal, work) = Self::around(writer);
        let thread = std::thread::Builder::new()
            .name("wal".to_owned())
            .spawn(move || work.run())
            .map_err(|source| OpenError::Thread {
                name: "wal",
                source,
            })?;
        wal.thread = Some(thread);
        Ok((wal, recovered))
    }

    /// Opens a log without threads: the holder of the [`StepDriver`] does the work, and `waker` is
    /// called whenever there is some. For simulations.
    ///
    /// # Errors
    /// As [`Wal::open`].
    pub fn open_stepped(
        fs: Arc<dyn Fs>,
        dir: &Path,
        options: Options,
        waker: Box<dyn Fn() + Send + Sync>,
    ) -> Result<(Self, StepDriver, Recovered), OpenError> {
        let (mut writer, recovered) = Writer::open(fs, dir, options)?;
        writer.prepare_ahead();
        let (mut wal, work) = Self::around(writer);
        let work = Arc::new(Mutex::new(work));
        wal.stepped = Some((waker, Arc::clone(&work)));
        Ok((wal, StepDriver::new(&work), recovered))
    }

    fn around(writer: Writer) -> (Self, Work) {
        let (calls, queue) = channel();
        let wal = Self {
            calls,
            committed: CommittedSlot::default(),
            shared: writer.shared(),
            thread: None,
            entry_limit: writer.entry_limit,
            segment_bytes: writer.segment_bytes,
            stepped: None,
        };
        let committed = Arc::clone(&wal.committed);
        (wal, Work::new(writer, queue, committed))
    }

    /// Appends entries and returns at once, without a system call; `done` is called when they are
    /// durable. Until then they cannot be read.
    ///
    /// Indexes must follow the last entry without holes; the first entry of a log that has none,
    /// and that nothing was purged from, may have any index.
    pub fn append(&self, entries: Vec<LogEntry>, done: Done) {
        self.call(Call::Append(entries, done));
    }

    /// Saves the vote, at most [`MAX_MARK_BYTES`]; `done` is called when it is durable.
    pub fn save_vote(&self, vote: Vec<u8>, done: Done) {
        self.call(Call::Vote(vote, done));
    }

    /// Offers a mark of what is committed, up to `index`, to ride on the next batch that is
    /// written. It wakes no caller, a later mark replaces it, and it is held back until the entry
    /// at `index` is in the log: a start that found a mark above the log could not go on.
    ///
    /// # Panics
    /// If the mark is longer than [`MAX_MARK_BYTES`].
    pub fn save_committed(&self, index: u64, mark: Vec<u8>) {
        assert!(
            mark.len() <= MAX_MARK_BYTES,
            "a committed mark of {} bytes",
            mark.len()
        );
        *self
            .committed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some((index, mark));
    }

    /// Removes every entry after `last_kept`, or every entry; `done` is called when that is
    /// durable. Appends that follow are ordered behind it and need not wait; what is written
    /// elsewhere, as a snapshot is, does.
    pub fn truncate_after(&self, last_kept: Option<EntryId>, done: Done) {
        self.call(Call::Truncate(last_kept, Some(done)));
    }

    /// Removes every entry up to and with `upto`, which may be above the last entry. Segments
    /// that hold nothing else are recycled once this is durable.
    pub fn purge(&self, upto: EntryId) {
        self.call(Call::Purge(upto));
    }

    /// Reads the live, durable entries from `from` up to but without `to_exclusive` from disk:
    /// at least one if there is any, else as many as have `max_bytes` of records.
    ///
    /// Entries whose `done` was not called yet are not found: the caller keeps them until then.
    ///
    /// # Errors
    /// [`WalError::Damaged`] if a record is no longer what was written, [`WalError::Io`] if it
    /// cannot be read. Neither stops the log.
    pub fn read(
        &self,
        from: u64,
        to_exclusive: u64,
        max_bytes: u64,
    ) -> Result<Vec<LogEntry>, WalError> {
        let mut entries = Vec::new();
        let mut left = max_bytes;
        let mut next = from;
        loop {
            let range = self
                .index()
                .read_range(next..to_exclusive, left.min(READ_BYTES));
            let Some(range) = range else { break };
            let bytes: u64 = range.locs.iter().map(|loc| u64::from(loc.len)).sum();
            if bytes > left && !entries.is_empty() {
                break;
            }
            match read_entries(&range) {
                Ok(read) => entries.extend(read),
                // Purged meanwhile, and the segment is being recycled: look again.
                Err(_) if self.is_purged(range.first) => {
                    entries.clear();
                    left = max_bytes;
                    next = from;
                    continue;
                }
                Err(error) => return Err(error),
            }
            next = range.first + range.locs.len() as u64;
            left = left.saturating_sub(bytes);
        }
        Ok(entries)
    }

    /// Returns the longest payload that an entry of this log may have, in bytes:
    /// [`crate::MAX_ENTRY_BYTES`], or what fits in one segment.
    #[must_use]
    pub const fn entry_limit(&self) -> u64 {
        self.entry_limit
    }

    /// Returns figures about the work done so far.
    pub fn stats(&self) -> WalStats {
        let live_bytes = self.index().live_bytes();
        self.shared.counters.read(live_bytes)
    }

    /// Bytes written and made durable since the log was opened, with headers and padding.
    #[must_use]
    pub fn bytes_appended(&self) -> u64 {
        self.shared.counters.bytes_appended()
    }

    /// Whether the file system has no room for another segment; see [`WalStats::no_room`].
    #[must_use]
    pub fn no_room(&self) -> bool {
        self.shared.counters.no_room()
    }

    /// How many bytes can be written without what is kept for votes, purges and what is in flight
    /// ([`crate::RESERVE_SEGMENTS`]), and without another segment: what is left in the active one and
    /// the prepared ones behind it. Calls that have queued still take of it.
    #[must_use]
    pub fn prepared_bytes(&self) -> u64 {
        self.shared.counters.prepared_bytes(self.segment_bytes)
    }

    /// Writes what has queued, seals the log and ends its threads.
    pub fn close(mut self) {
        self.end();
    }

    fn call(&self, call: Call) {
        let Err(refused) = self.calls.send(call) else {
            if let Some((waker, _)) = &self.stepped {
                waker();
            }
            return;
        };
        // The thread is gone only if a callback panicked: the callback's own message tells why.
        refused.0.refuse(&WalError::Closed);
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.shared
            .index
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_purged(&self, index: u64) -> bool {
        let wanted: Range<u64> = index..index + 1;
        self.index().read_range(wanted, 0).is_none()
    }

    fn end(&mut self) {
        if let Some((_, work)) = self.stepped.take() {
            self.calls.send(Call::Close).ok();
            // A callback may drop the last handle, in the middle of the work.
            if let Ok(mut work) = work.try_lock() {
                work.finish();
            }
            return;
        }
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.call(Call::Close);
        // A callback may drop the last handle, on the very thread that would be waited for.
        if thread.thread().id() != std::thread::current().id() {
            // A panic in the thread was printed where it happened.
            thread.join().ok();
        }
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.end();
    }
}
