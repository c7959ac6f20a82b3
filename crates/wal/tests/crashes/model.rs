//! What a log must contain: the state after some prefix of the operations asked for, no shorter
//! than what was acknowledged.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use ringfence_wal::sim::SimFs;
use ringfence_wal::{Done, EntryId, LogEntry, OpenError, Options, Recovered, Writer};

/// Segments small enough that a short scenario fills many.
pub(crate) const SEGMENT_BYTES: u64 = 32 * 1024;
/// What a batch fills a multiple of, and the header one of.
pub(crate) const BLOCK: u64 = 4096;

/// Returns the directory of every simulated log.
pub(crate) fn dir() -> PathBuf {
    PathBuf::from("/log")
}

/// Returns a disk with an empty directory for the log.
pub(crate) fn disk() -> SimFs {
    SimFs::with_dir(&dir())
}

/// Returns options whose every byte on disk repeats, and which record a fatal error in `fatal`.
pub(crate) fn options(fatal: &Arc<AtomicBool>) -> Options {
    let fatal = Arc::clone(fatal);
    Options {
        segment_bytes: SEGMENT_BYTES,
        on_fatal: Box::new(move |_| assert!(!fatal.swap(true, Ordering::Relaxed), "told once")),
        salt: 7,
        ..Options::new(*b"me")
    }
}

/// Opens the log in `fs` for inspection.
pub(crate) fn open(fs: &SimFs) -> Result<(Writer, Recovered), OpenError> {
    Writer::open(
        Arc::new(fs.clone()),
        Path::new("/log"),
        options(&Arc::default()),
    )
}

/// One thing asked of the log; an append of several entries counts as several.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    Append(LogEntry),
    Vote(Vec<u8>),
    Truncate(Option<EntryId>),
    Purge(EntryId),
}

/// The state that operations lead to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    pub(crate) vote: Option<Vec<u8>>,
    pub(crate) purged: Option<EntryId>,
    pub(crate) last: Option<EntryId>,
    pub(crate) entries: Vec<LogEntry>,
}

impl State {
    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::Append(entry) => {
                self.last = Some(entry.id);
                self.entries.push(entry.clone());
            }
            Op::Vote(vote) => self.vote = Some(vote.clone()),
            Op::Truncate(kept) => {
                self.entries
                    .retain(|e| Some(e.id.index) <= kept.map(|id| id.index));
                self.last = kept.or(self.purged);
            }
            Op::Purge(upto) => {
                self.entries.retain(|e| e.id.index > upto.index);
                self.purged = Some(*upto);
                self.last = self.last.max(self.purged);
            }
        }
    }

    pub(crate) fn of(recovered: &Recovered) -> Self {
        let Recovered {
            vote,
            purged,
            last,
            entries,
            ..
        } = recovered.clone();
        Self {
            vote,
            purged,
            last,
            entries,
        }
    }
}

/// A log under test, with everything that was asked of it.
pub(crate) struct Subject {
    pub(crate) writer: Option<Writer>,
    pub(crate) ops: Vec<Op>,
    pub(crate) state: State,
    /// How many of `ops` were acknowledged, with all before them.
    pub(crate) acknowledged: Arc<AtomicUsize>,
    pub(crate) fatal: Arc<AtomicBool>,
}

impl Subject {
    /// Opens an empty log; the writer is missing if a planted fault forbids it.
    pub(crate) fn new(fs: &SimFs) -> Self {
        let fatal = Arc::default();
        let writer = Writer::open(Arc::new(fs.clone()), &dir(), options(&fatal)).ok();
        Self {
            writer: writer.map(|(writer, _)| writer),
            ops: Vec::new(),
            state: State::default(),
            acknowledged: Arc::default(),
            fatal,
        }
    }

    /// Opens an existing log and goes on with what it recovered.
    pub(crate) fn resume(fs: &SimFs) -> Result<(Self, Recovered), OpenError> {
        let fatal = Arc::default();
        let (writer, recovered) = Writer::open(Arc::new(fs.clone()), &dir(), options(&fatal))?;
        let subject = Self {
            writer: Some(writer),
            ops: Vec::new(),
            state: State::of(&recovered),
            acknowledged: Arc::default(),
            fatal,
        };
        Ok((subject, recovered))
    }

    pub(crate) fn next_index(&self) -> u64 {
        self.state.last.map_or(0, |id| id.index + 1)
    }

    /// Appends `payloads` as entries of `term`.
    pub(crate) fn append(&mut self, term: u64, payloads: Vec<Vec<u8>>) {
        let entries: Vec<LogEntry> = payloads
            .into_iter()
            .zip(self.next_index()..)
            .map(|(payload, index)| LogEntry {
                id: EntryId { term, index },
                payload: Bytes::from(payload),
            })
            .collect();
        entries
            .iter()
            .for_each(|entry| self.note(Op::Append(entry.clone())));
        let done = self.done();
        if let Some(writer) = &mut self.writer {
            writer.append(entries, done);
        }
    }

    pub(crate) fn vote(&mut self, vote: &[u8]) {
        self.note(Op::Vote(vote.to_vec()));
        let done = self.done();
        if let Some(writer) = &mut self.writer {
            writer.save_vote(vote.to_vec(), done);
        }
    }

    pub(crate) fn truncate(&mut self, kept: Option<EntryId>) {
        self.note(Op::Truncate(kept));
        if let Some(writer) = &mut self.writer {
            writer.truncate_after(kept);
        }
    }

    pub(crate) fn purge(&mut self, upto: EntryId) {
        self.note(Op::Purge(upto));
        if let Some(writer) = &mut self.writer {
            writer.purge(upto);
        }
    }

    pub(crate) fn commit(&mut self, index: u64) {
        if let Some(writer) = &mut self.writer {
            writer.save_committed(index, index.to_le_bytes().to_vec());
        }
    }

    pub(crate) fn flush(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.flush();
        }
    }

    /// Closes the log cleanly.
    pub(crate) fn close(mut self) {
        if let Some(writer) = self.writer.take() {
            writer.close();
        }
    }

    /// Returns how many operations were acknowledged.
    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Checks that what was recovered is the state after a prefix of the operations that holds
    /// all that were acknowledged, starting from `base`.
    pub(crate) fn check(&self, base: &State, recovered: &Recovered, context: &str) {
        let acknowledged = self.acknowledged();
        let found = State::of(recovered);
        let mut state = base.clone();
        let mut matched = acknowledged == 0 && state == found;
        for (count, op) in self.ops.iter().enumerate() {
            state.apply(op);
            matched |= count + 1 >= acknowledged && state == found;
        }
        assert!(
            matched,
            "{context}: {acknowledged} of {} operations were acknowledged, found vote {:?}, \
             purged {:?}, last {:?}, {} entries",
            self.ops.len(),
            found.vote,
            found.purged,
            found.last,
            found.entries.len()
        );
        if let Some(mark) = &recovered.committed {
            let index = u64::from_le_bytes(mark.as_slice().try_into().unwrap());
            assert!(
                Some(index) <= found.last.map(|id| id.index),
                "{context}: mark {index}"
            );
        }
    }

    fn note(&mut self, op: Op) {
        self.state.apply(&op);
        self.ops.push(op);
    }

    fn done(&self) -> Done {
        let acknowledged = Arc::clone(&self.acknowledged);
        let count = self.ops.len();
        Box::new(move |result| {
            if result.is_ok() {
                acknowledged.fetch_max(count, Ordering::Relaxed);
            }
        })
    }
}
