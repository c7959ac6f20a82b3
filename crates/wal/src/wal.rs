//! The handle that callers hold, and the work behind it: calls from the queue, a turn for all that have
//! queued. A thread takes turn after turn; a simulation takes the two steps of each when it says so.

use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockReadGuard, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::call::{Call, CommittedSlot};
use crate::clock;
use crate::fs::Fs;
use crate::index::Index;
use crate::read::read_entries;
use crate::writer::{Shared, Writer, WrittenBatch};
use crate::{
    Done, EntryId, LogEntry, MAX_MARK_BYTES, OpenError, Options, RealFs, Recovered, WalError,
    WalStats,
};

/// The most that one read takes from disk at once, in bytes of records, unless a single record is
/// longer.
const READ_BYTES: u64 = 1024 * 1024;
/// How long calls that wait for room on the file system wait before it is looked for again.
const ROOM_AGAIN: Duration = Duration::from_millis(500);

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

/// The writer and the way to it.
struct Work {
    writer: Writer,
    queue: Receiver<Call>,
    committed: CommittedSlot,
    open: bool,
    /// A batch that only a stepped log leaves between its two steps.
    written: Option<WrittenBatch>,
}

impl Work {
    fn new(writer: Writer, queue: Receiver<Call>, committed: CommittedSlot) -> Self {
        Self {
            writer,
            queue,
            committed,
            open: true,
            written: None,
        }
    }

    /// The writer thread: takes one call, then all that have queued, and flushes once for them.
    fn run(mut self) {
        let mut crowded = false;
        let mut resumed = clock::now();
        while self.open {
            let call = match self.writer.is_stalled() {
                false => self
                    .queue
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                true => self.queue.recv_timeout(ROOM_AGAIN),
            };
            match call {
                Ok(call) => self.take(call),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let mut taken = 1 + self.take_queued();
            if crowded {
                // Callers that were just notified tend to call again, and share these cores with
                // us. One step aside lets them in, which halves the number of syncs when many are
                // in flight. A lone caller never meets it.
                std::thread::yield_now();
                taken += self.take_queued();
            }
            crowded = taken > 1;
            self.offer_mark();
            if self.writer.is_stalled() && resumed.elapsed() >= ROOM_AGAIN {
                self.writer.resume();
                resumed = clock::now();
            }
            self.writer.write_out();
        }
        self.writer.close();
    }

    /// Hands everything that has queued to the writer, and returns how many calls it was.
    fn take_queued(&mut self) -> u64 {
        let mut taken = 0;
        while self.open {
            match self.queue.try_recv() {
                Ok(call) => self.take(call),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
            taken += 1;
        }
        taken
    }

    /// Hands one call to the writer; the last one ends the work.
    fn take(&mut self, call: Call) {
        match call {
            Call::Close => self.open = false,
            call => self.writer.take(call),
        }
    }

    fn offer_mark(&mut self) {
        let mark = self
            .committed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some((index, mark)) = mark {
            self.writer.save_committed(index, mark);
        }
    }

    /// The first step of a turn; true if there is something to sync.
    fn write(&mut self) -> bool {
        if !self.open || self.written.is_some() {
            return self.written.is_some();
        }
        let stalled = self.writer.is_stalled();
        if self.take_queued() > 0 || stalled {
            self.offer_mark();
            if stalled {
                self.writer.resume();
            }
            // A failure has poisoned the log, and every call that waits was notified.
            self.written = self.writer.write_batch().ok().flatten();
        }
        self.written.is_some()
    }

    /// The second step of a turn: makes the batch durable and completes its calls.
    fn sync(&mut self) {
        if let Some(written) = self.written.take()
            && self.writer.sync_batch(written).is_ok()
        {
            self.writer.recycle();
            self.writer.prepare_ahead();
        }
    }

    /// Does all that is left and seals the log.
    fn finish(&mut self) {
        self.sync();
        self.take_queued();
        self.offer_mark();
        self.open = false;
        self.writer.seal();
    }
}

/// The work of a log that has no thread, in two steps per turn. It does not keep the log open.
pub struct StepDriver {
    work: Weak<Mutex<Work>>,
}

impl StepDriver {
    fn new(work: &Arc<Mutex<Work>>) -> Self {
        let work = Arc::downgrade(work);
        Self { work }
    }

    /// Returns true until the log is closed.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.with(|work| work.open).unwrap_or(false)
    }

    /// Returns true if calls wait for room on the file system: [`StepDriver::write`] tries again.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.with(|work| work.writer.is_stalled()).unwrap_or(false)
    }

    /// Takes what has queued and writes it as a batch; true if one waits to be synced. A crash
    /// now may lose any part of it.
    pub fn write(&mut self) -> bool {
        self.with(Work::write).unwrap_or(false)
    }

    /// Makes the batch durable and reports its calls done.
    pub fn sync(&mut self) {
        let _ = self.with(Work::sync);
    }

    fn with<T>(&self, step: impl FnOnce(&mut Work) -> T) -> Option<T> {
        let work = self.work.upgrade()?;
        let mut work: MutexGuard<'_, Work> = work.lock().unwrap_or_else(PoisonError::into_inner);
        Some(step(&mut work))
    }
}
