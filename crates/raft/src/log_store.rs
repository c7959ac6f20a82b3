//! The log of a node: openraft's view of the write-ahead log and the ring before it.
//!
//! Nothing here makes a system call on openraft's task but a miss of the ring, which reads the
//! disk on a blocking thread, and saving a vote, which waits for the disk as it must.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, RaftLogReader};
use prost::Message;
use ringfence_planted::{Bug, planted};
use ringfence_proto::raft as pb;
use ringfence_wal::{EntryId, LogEntry, Recovered, Wal};
use tokio::sync::{Notify, oneshot};

use crate::codec::{self, Malformed};
use crate::ring::{ENTRY_BYTES, RING_BYTES, Ring};
use crate::type_config::{Entry, LogId, TypeConfig, Vote, log_id};

/// The most bytes of entries that one read for replication returns, or one part of what is applied
/// holds; a single greater entry is returned alone.
pub(crate) const READ_BYTES_MAX: usize = 2 << 20;
/// The most bytes that one read of the disk returns.
const DISK_READ_BYTES_MAX: u64 = 8 << 20;

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
    /// Told when there are fewer of them.
    flushed_some: Notify,
    /// Bytes appended since the last snapshot was asked for.
    grown: AtomicU64,
    grown_enough: u64,
    snapshot_due: Notify,
}

struct Inner {
    ring: Ring,
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    last: Option<LogId>,
}

#[derive(Default)]
struct Flushed {
    index: Option<u64>,
    cuts: u64,
}

impl LogStore {
    /// The store over an opened write-ahead log. `snapshot_bytes` of appended entries make
    /// [`LogStore::snapshot_due`] return.
    pub(crate) fn new(
        wal: Wal,
        recovered: Recovered,
        snapshot_bytes: u64,
    ) -> Result<Self, Malformed> {
        let mut ring = Ring::new(RING_BYTES);
        let last = recovered.last.map(from_entry_id);
        let last_index = last.map(|last| last.index);
        let mut grown = 0;
        for entry in recovered.entries {
            grown += entry.payload.len() as u64;
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
            grown: AtomicU64::new(grown),
            grown_enough: snapshot_bytes,
            snapshot_due: Notify::new(),
        };
        Ok(Self { log: Arc::new(log) })
    }

    /// Returns when so much was appended that a snapshot should be taken; counting starts anew.
    pub(crate) async fn snapshot_due(&self) {
        loop {
            if self.log.grown.load(Ordering::Relaxed) >= self.log.grown_enough {
                self.log.grown.store(0, Ordering::Relaxed);
                return;
            }
            self.log.snapshot_due.notified().await;
        }
    }

    /// The write-ahead log's own figures.
    pub(crate) fn wal_stats(&self) -> ringfence_wal::WalStats {
        self.log.wal().map(|wal| wal.stats()).unwrap_or_default()
    }

    /// Closes the log, so that its directory is free. What was appended is on disk then.
    pub(crate) fn close(&self) {
        let wal = self
            .log
            .wal
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // Whoever reads the disk at this moment closes it when done.
        if let Some(wal) = wal.and_then(Arc::into_inner) {
            wal.close();
        }
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
    fn wal(&self) -> io::Result<Arc<Wal>> {
        let wal = self
            .wal
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        wal.ok_or_else(|| io::Error::other("the log is closed"))
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn flushed(&self) -> MutexGuard<'_, Flushed> {
        self.flushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries from `from`, below `end`, up to `bytes_max` but at least one if there is one.
    async fn entries(
        self: &Arc<Self>,
        from: u64,
        end: u64,
        bytes_max: usize,
    ) -> io::Result<Vec<Entry>> {
        let (from, ring_first) = {
            let inner = self.read();
            let purged = inner.purged.map_or(0, |purged| purged.index + 1);
            let from = from.max(purged);
            if let Some(entries) = inner.ring.range(from, end) {
                return Ok(capped(entries, bytes_max));
            }
            (from, inner.ring.first())
        };
        // What the ring has never held or has dropped is on disk, up to where the ring begins.
        let disk_end = ring_first.map_or(end, |first| end.min(first));
        if from >= disk_end {
            return Ok(Vec::new());
        }
        let wal = self.wal()?;
        let limit = (bytes_max as u64).min(DISK_READ_BYTES_MAX);
        let read = crate::runtime::blocking(move || wal.read(from, disk_end, limit));
        let entries = read
            .await
            .map_err(io::Error::other)?
            .map_err(io::Error::other)?;
        if entries.is_empty()
            && let Some(first) = ring_first
            && let Some(entries) = self.read().ring.range(first, end)
        {
            // The log begins where the ring does.
            return Ok(capped(entries, bytes_max));
        }
        Ok(entries
            .into_iter()
            .map(entry_from_wal)
            .collect::<Result<_, _>>()?)
    }
}

fn capped<'a>(entries: impl Iterator<Item = &'a Entry>, bytes_max: usize) -> Vec<Entry> {
    let mut bytes = 0;
    let mut taken = Vec::new();
    for entry in entries {
        bytes += codec::payload_to_bytes(&entry.payload).len();
        if bytes > bytes_max && !taken.is_empty() {
            break;
        }
        taken.push(entry.clone());
    }
    taken
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (from, end)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let (mut from, end) = bounds(&range);
        let end = end.min(self.log.read().last.map_or(0, |last| last.index + 1));
        let mut all = Vec::new();
        while from < end {
            let part = self.log.entries(from, end, usize::MAX).await?;
            let Some(last) = part.last() else { break };
            from = last.log_id.index + 1;
            all.extend(part);
        }
        Ok(all)
    }

    /// What is applied is read through this. A node that was away has much to apply at once, so it
    /// is read in parts.
    async fn entries_stream<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + Send {
        let (from, end) = bounds(&range);
        let end = end.min(self.last_index() + 1);
        let parts = stream::try_unfold((self.log.clone(), from), move |(log, from)| async move {
            if from >= end {
                return Ok::<_, io::Error>(None);
            }
            let part = log.entries(from, end, READ_BYTES_MAX).await?;
            let next = part.last().map(|last| last.log_id.index + 1);
            let part = stream::iter(part.into_iter().map(Ok));
            Ok(next.map(|next| (part, (log, next))))
        });
        parts.try_flatten().boxed()
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.log.read().vote)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        self.log.entries(start, end, READ_BYTES_MAX).await
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
                drop(done.send(result));
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
        self.log.write().committed = committed;
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
            let flushed = self.log.flushed();
            (flushed.index, flushed.cuts)
        };
        let wal = self.log.wal()?;
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut in_memory = 0;
        let mut inner = self.log.write();
        for entry in entries {
            let payload = codec::payload_to_bytes(&entry.payload);
            bytes += payload.len() as u64;
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
                    let mut flushed = log.flushed();
                    if flushed.cuts == cuts {
                        flushed.index = flushed.index.max(Some(last));
                    }
                    drop(flushed);
                    log.unflushed.fetch_sub(in_memory, Ordering::Relaxed);
                    log.flushed_some.notify_waiters();
                }
                if let Some(callback) = callback {
                    callback.io_completed(result.map_err(io::Error::other));
                }
            }),
        );
        drop(inner);
        let grown = self.log.grown.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if grown >= self.log.grown_enough {
            self.log.snapshot_due.notify_one();
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let mut inner = self.log.write();
        let kept = last.map(|last| last.index);
        {
            let mut flushed = self.log.flushed();
            flushed.cuts += 1;
            flushed.index = flushed.index.min(kept);
        }
        inner.ring.truncate_after(kept);
        // An end behind the log's own cuts nothing.
        inner.last = inner.last.min(last).max(inner.purged);
        self.log.wal()?.truncate_after(last.map(to_entry_id));
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        let mut inner = self.log.write();
        inner.ring.purge(upto.index);
        inner.purged = inner.purged.max(Some(upto));
        inner.last = inner.last.max(inner.ring.last()).max(Some(upto));
        self.log.wal()?.purge(to_entry_id(upto));
        Ok(())
    }
}

fn to_entry_id(log_id: LogId) -> EntryId {
    EntryId {
        term: log_id.leader_id.term,
        index: log_id.index,
    }
}

fn from_entry_id(id: EntryId) -> LogId {
    log_id(id.term, id.index)
}

fn entry_from_wal(entry: LogEntry) -> Result<Entry, Malformed> {
    Ok(Entry {
        log_id: from_entry_id(entry.id),
        payload: codec::payload_from_bytes(entry.payload)?,
    })
}

fn decode_vote(bytes: &[u8]) -> Result<Vote, Malformed> {
    let message = pb::Vote::decode(bytes).map_err(|error| Malformed::new("saved vote", error))?;
    codec::vote_from_pb(Some(message))
}

fn decode_log_id(bytes: &[u8]) -> Result<LogId, Malformed> {
    let message = pb::LogId::decode(bytes);
    message
        .map(codec::log_id_from_pb)
        .map_err(|error| Malformed::new("commit mark", error))
}
