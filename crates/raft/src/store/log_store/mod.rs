//! The log of a node: openraft's view of the write-ahead log and the ring before it.
//!
//! Nothing here makes a system call on openraft's task but a miss of the ring, which reads the
//! disk on a blocking thread, and saving a vote, which waits for the disk as it must.

mod reader;
pub(crate) mod reserve;
mod room;
mod stored;
mod uncommitted;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::LogState;
use openraft::storage::{IOFlushed, RaftLogStorage};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use prost::Message;
use ringfence_planted::{Bug, planted};
use ringfence_wal::{LogEntry, Recovered, Wal};
use tokio::sync::{Notify, oneshot};

use self::reserve::Reserve;
use self::stored::{decode_log_id, decode_vote, entry_from_wal, from_entry_id, to_entry_id};
use self::uncommitted::Uncommitted;
use crate::platform::clock;
use crate::store::ring::{ENTRY_BYTES, RING_BYTES, Ring};
use crate::types::codec::{self, Malformed};
use crate::types::type_config::{Entry, LogId, TypeConfig, Vote};

/// The most bytes of entries that one read for replication returns, or one part of what is applied
/// holds; a single greater entry is returned alone.
pub(crate) const READ_BYTES_MAX: usize = 2 << 20;

/// How often it is looked whether there is room for more log, where there was none or where there
/// was some.
const ROOM_AGAIN: Duration = Duration::from_millis(200);

/// How far apart snapshots are, at least, that are taken because there is no room: each is written
/// whole, to a disk that may be nearly full.
const NO_ROOM_SNAPSHOT_EVERY: Duration = Duration::from_secs(10);

/// Why a snapshot should be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SnapshotDue {
    /// The log has grown enough.
    Grown,
    /// There is no room for more log: what the snapshot covers should go at once.
    NoRoom,
}

/// The log store; clones share the log.
#[derive(Clone)]
pub(crate) struct LogStore {
    log: Arc<Log>,
}

struct Log {
    /// `None` once the log is closed.
    wal: RwLock<Option<Arc<Wal>>>,
    inner: RwLock<Inner>,
    /// What the disk has, and how often the end of the log was cut: a write that was under way
    /// when the log was cut says nothing about the entries that came in its place.
    flushed: Mutex<Flushed>,
    /// Bytes that were appended and that the disk does not have yet: they lie in memory.
    unflushed: AtomicU64,
    /// Notified when there are fewer of them.
    flushed_some: Notify,
    /// Bytes that the log had in its segments when it was opened.
    begun_with: u64,
    /// The bytes that had been written when the last snapshot was asked for.
    snapshot_at: AtomicU64,
    grown_enough: u64,
    /// Before this time, in milliseconds since boot, no snapshot is taken for lack of room.
    next_for_room: AtomicU64,
    snapshot_due: Notify,
    /// What was taken of the reserve since there is no room.
    reserve: Mutex<Reserve>,
}

struct Inner {
    ring: Ring,
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    last: Option<LogId>,
    /// Of what was appended since the log was opened.
    uncommitted: Uncommitted,
}

#[derive(Default)]
struct Flushed {
    index: Option<u64>,
    cuts: u64,
}

impl LogStore {
    /// The store over an opened write-ahead log. `snapshot_bytes` of it, as it lies on the disk, make
    /// [`LogStore::snapshot_due`] return.
    pub(crate) fn new(
        wal: Wal,
        recovered: Recovered,
        snapshot_bytes: u64,
    ) -> Result<Self, Malformed> {
        let mut ring = Ring::new(RING_BYTES);
        let last = recovered.last.map(from_entry_id);
        let last_index = last.map(|last| last.index);
        for entry in recovered.entries {
            ring.push(entry_from_wal(entry)?, last_index);
        }
        let inner = Inner {
            ring,
            vote: recovered
                .vote
                .map(|bytes| decode_vote(&bytes))
                .transpose()?,
            committed: recovered
                .committed
                .map(|bytes| decode_log_id(&bytes))
                .transpose()?,
            purged: recovered
                .purged
                .map(from_entry_id)
                .filter(|_| !planted(Bug::PurgedForgotten)),
            last: last.or(recovered.purged.map(from_entry_id)),
            uncommitted: Uncommitted::default(),
        };
        let log = Log {
            wal: RwLock::new(Some(Arc::new(wal))),
            inner: RwLock::new(inner),
            flushed: Mutex::new(Flushed {
                index: last_index,
                cuts: 0,
            }),
            unflushed: AtomicU64::new(0),
            flushed_some: Notify::new(),
            begun_with: recovered.log_bytes,
            snapshot_at: AtomicU64::new(0),
            grown_enough: snapshot_bytes,
            next_for_room: AtomicU64::new(0),
            snapshot_due: Notify::new(),
            reserve: Mutex::default(),
        };
        Ok(Self { log: Arc::new(log) })
    }

    /// Returns when a snapshot should be taken: so much was appended, or there is no room and
    /// something was appended. Counting starts again.
    pub(crate) async fn snapshot_due(&self) -> SnapshotDue {
        let log = &self.log;
        loop {
            let written = log.written();
            let now = clock::since_boot();
            let full = self.no_room() && written > log.snapshot_at.load(Ordering::Relaxed);
            let due = if log.has_grown() {
                Some(SnapshotDue::Grown)
            } else if full && now >= log.next_for_room() {
                Some(SnapshotDue::NoRoom)
            } else {
                None
            };
            if let Some(due) = due {
                log.snapshot_at.store(written, Ordering::Relaxed);
                let again = millis(now + NO_ROOM_SNAPSHOT_EVERY);
                log.next_for_room.store(again, Ordering::Relaxed);
                return due;
            }
            tokio::select! {
                () = log.snapshot_due.notified() => {}
                () = tokio::time::sleep(ROOM_AGAIN) => {}
            }
        }
    }

    /// The write-ahead log's own figures.
    pub(crate) fn wal_stats(&self) -> ringfence_wal::WalStats {
        self.log.wal().map(|wal| wal.stats()).unwrap_or_default()
    }

    /// Closes the log, so that its directory is free. What was appended is on disk then.
    pub(crate) fn close(&self) {
        let wal = self.log.wal.write().take();
        // The reader of the disk at this moment closes it when done.
        if let Some(wal) = wal.and_then(Arc::into_inner) {
            wal.close();
        }
    }

    /// Whether the file system has no room for more log than what is set aside for what is in
    /// flight; see [`ringfence_wal::WalStats::no_room`].
    pub(crate) fn no_room(&self) -> bool {
        self.log.wal().is_ok_and(|wal| wal.no_room())
    }

    /// Up to where the disk has the log.
    pub(crate) fn flushed_index(&self) -> Option<u64> {
        self.log.flushed.lock().index
    }

    /// Entries that were appended and are not known to be committed, and the bytes of their payloads.
    pub(crate) fn uncommitted(&self) -> (u64, u64) {
        self.log.read().uncommitted.figures()
    }

    /// The longest entry that this node's log can hold, in bytes; 0 once it is closed.
    pub(crate) fn entry_limit(&self) -> u64 {
        self.log.wal().map_or(0, |wal| wal.entry_limit())
    }

    /// The last entry, or what was purged if there is none.
    pub(crate) fn last_log_id(&self) -> Option<LogId> {
        self.log.read().last
    }

    /// Bytes that were appended and that the disk does not have yet.
    pub(crate) fn unflushed(&self) -> u64 {
        self.log.unflushed.load(Ordering::Relaxed)
    }

    /// Returns once at most `most` bytes wait for the disk.
    pub(crate) async fn flushed_to(&self, most: u64) {
        loop {
            let some = self.log.flushed_some.notified();
            if self.unflushed() <= most {
                return;
            }
            some.await;
        }
    }

    /// Whether any entry was ever in the log.
    pub(crate) fn has_begun(&self) -> bool {
        self.log.read().last.is_some()
    }

    /// Whether nothing was ever written: no vote, no entry.
    pub(crate) fn is_blank(&self) -> bool {
        let inner = self.log.read();
        inner.vote.is_none() && inner.last.is_none()
    }

    /// The last log index, 0 if the log is empty.
    pub(crate) fn last_index(&self) -> u64 {
        self.log.read().last.map_or(0, |last| last.index)
    }
}

impl Log {
    /// Bytes that were written to the log, as it takes room on the disk.
    fn written(&self) -> u64 {
        let appended = self.wal().map_or(0, |wal| wal.bytes_appended());
        self.begun_with + appended
    }

    /// See [`Wal::prepared_bytes`]; a log that is closed takes nothing anyway.
    fn prepared(&self) -> u64 {
        self.wal().map_or(u64::MAX, |wal| wal.prepared_bytes())
    }

    /// How many bytes are replicated together: several times as much fits in what a follower has
    /// prepared, as long as its segments are as long as these.
    fn replicated_together(&self) -> usize {
        let limit = self.wal().map_or(0, |wal| wal.entry_limit()) / 4;
        READ_BYTES_MAX.min(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    fn next_for_room(&self) -> Duration {
        Duration::from_millis(self.next_for_room.load(Ordering::Relaxed))
    }

    fn has_grown(&self) -> bool {
        let since = self.snapshot_at.load(Ordering::Relaxed);
        self.written().saturating_sub(since) >= self.grown_enough
    }

    fn wal(&self) -> io::Result<Arc<Wal>> {
        let wal = self.wal.read().clone();
        wal.ok_or_else(|| io::Error::other("the log is closed"))
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write()
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let inner = self.log.read();
        Ok(LogState {
            last_purged_log_id: inner.purged,
            last_log_id: inner.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let (done, saved) = oneshot::channel();
        let bytes = codec::vote_to_pb(*vote).encode_to_vec();
        self.log.wal()?.save_vote(
            bytes,
            Box::new(move |result| {
                done.send(result).ok();
            }),
        );
        if !planted(Bug::VoteNotAwaited) {
            let saved = saved.await.map_err(io::Error::other)?;
            saved.map_err(io::Error::other)?;
        }
        self.log.write().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        {
            let mut inner = self.log.write();
            inner.committed = committed;
            if let Some(committed) = committed {
                inner.uncommitted.committed(committed.index);
            }
        }
        if let Some(committed) = committed {
            // It rides along with the next batch: the next start only replays a little more.
            let mark = codec::log_id_to_pb(committed).encode_to_vec();
            self.log.wal()?.save_committed(committed.index, mark);
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.log.read().committed)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: IOFlushed<TypeConfig>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let (flushed, cuts) = {
            let flushed = self.log.flushed.lock();
            (flushed.index, flushed.cuts)
        };
        let wal = self.log.wal()?;
        let mut batch = Vec::new();
        let mut in_memory = 0;
        let mut inner = self.log.write();
        for entry in entries {
            let payload = codec::payload_to_bytes(&entry.payload);
            in_memory += payload.len() as u64 + ENTRY_BYTES;
            inner.last = Some(entry.log_id);
            batch.push(LogEntry {
                id: to_entry_id(entry.log_id),
                payload,
            });
            inner.ring.push(entry, flushed);
        }
        let Some(last) = batch.last().map(|entry| entry.id.index) else {
            drop(inner);
            callback.io_completed(Ok(()));
            return Ok(());
        };
        let count = batch.len() as u64;
        inner.uncommitted.appended(last, count, in_memory);
        self.log.unflushed.fetch_add(in_memory, Ordering::Relaxed);
        let log = Arc::downgrade(&self.log);
        let mut callback = Some(callback);
        if planted(Bug::AckedWhenQueued)
            && let Some(callback) = callback.take()
        {
            callback.io_completed(Ok(()));
        }
        wal.append(
            batch,
            Box::new(move |result| {
                if let (Ok(()), Some(log)) = (&result, log.upgrade()) {
                    let mut flushed = log.flushed.lock();
                    if flushed.cuts == cuts {
                        flushed.index = flushed.index.max(Some(last));
                    }
                    drop(flushed);
                    log.unflushed.fetch_sub(in_memory, Ordering::Relaxed);
                    log.flushed_some.notify_waiters();
                    if log.has_grown() {
                        log.snapshot_due.notify_one();
                    }
                }
                if let Some(callback) = callback {
                    callback.io_completed(result.map_err(io::Error::other));
                }
            }),
        );
        drop(inner);
        Ok(())
    }

    /// Returns when it is durable: openraft installs a snapshot after it cut what contradicts the
    /// snapshot, and a start that finds the snapshot must not find the contradiction.
    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let (done, cut) = oneshot::channel();
        {
            let mut inner = self.log.write();
            let kept = last.map(|last| last.index);
            {
                let mut flushed = self.log.flushed.lock();
                flushed.cuts += 1;
                flushed.index = flushed.index.min(kept);
            }
            inner.ring.truncate_after(kept);
            inner.uncommitted.cut(kept);
            // An end behind the log's own cuts nothing.
            inner.last = inner.last.min(last).max(inner.purged);
            let done = Box::new(move |result| drop(done.send(result)));
            self.log.wal()?.truncate_after(last.map(to_entry_id), done);
        }
        if planted(Bug::CutNotAwaited) {
            return Ok(());
        }
        let cut = cut.await.map_err(io::Error::other)?;
        cut.map_err(io::Error::other)
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        let mut inner = self.log.write();
        inner.ring.purge(upto.index);
        inner.uncommitted.committed(upto.index);
        inner.purged = inner.purged.max(Some(upto));
        inner.last = inner.last.max(inner.ring.last()).max(Some(upto));
        self.log.wal()?.purge(to_entry_id(upto));
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
