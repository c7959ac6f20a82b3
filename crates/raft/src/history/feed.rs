//! The thread that writes the index, and the way to it, on which nobody ever waits.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringfence_core::Event;
use ringfence_proto::raft as pb;

use super::store::{Change, Store};
use super::{HistoryLimits, record};
use crate::clock;
use crate::events::Position;

/// Batches that may wait for the thread; what does not fit becomes a gap.
const QUEUED_MAX: usize = 16_384;
/// Records that may wait for the thread; one entry may bring ten thousand.
const RECORDS_QUEUED_MAX: usize = 131_072;
/// The most records of one write.
const RECORDS_PER_WRITE: usize = 4_096;
/// How often what was written is flushed to disk.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How many old records are dropped at a time.
const PRUNED_AT_ONCE: usize = 1_000;

enum Message {
    Applied {
        after: u64,
        upto: u64,
        records: Vec<pb::HistoryRecord>,
    },
    Fetched {
        records: Vec<pb::HistoryRecord>,
        covered: Vec<(u64, u64)>,
    },
    End,
}

/// Takes note of what is applied.
#[derive(Clone)]
pub(crate) struct HistoryFeed {
    queue: Option<SyncSender<Message>>,
    /// The newest index that was handed over.
    newest: Arc<AtomicU64>,
    /// Records that wait for the thread.
    waiting: Arc<AtomicUsize>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl HistoryFeed {
    /// A feed that leads nowhere.
    pub(crate) fn off() -> Self {
        Self {
            queue: None,
            newest: Arc::default(),
            waiting: Arc::default(),
            thread: Arc::default(),
        }
    }

    /// Notes the events of the entries up to `upto`, all that come behind the last call's.
    pub(crate) fn applied(&self, upto: u64, events: &[(Position, Event)]) {
        let after = self.newest.swap(upto, Ordering::Relaxed);
        let Some(queue) = &self.queue else { return };
        if self.waiting.load(Ordering::Relaxed) >= RECORDS_QUEUED_MAX {
            return;
        }
        let records = events.iter();
        let records: Vec<_> = records
            .filter_map(|(at, event)| record::of_event(at.index, event))
            .collect();
        let count = records.len();
        self.waiting.fetch_add(count, Ordering::Relaxed);
        // A full queue loses the message: its indices are a gap, which is named and filled.
        match queue.try_send(Message::Applied {
            after,
            upto,
            records,
        }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.waiting.fetch_sub(count, Ordering::Relaxed);
            }
        }
    }

    /// Notes that the state jumped to `index`: what happened on the way is not known here.
    pub(crate) fn skipped_to(&self, index: u64) {
        self.newest.store(index, Ordering::Relaxed);
    }

    /// The newest index that was handed over.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// Adds what a peer knows. `covered` may be empty while more is to come.
    pub(super) fn fetched(
        &self,
        records: Vec<pb::HistoryRecord>,
        covered: Vec<(u64, u64)>,
    ) -> bool {
        if self.waiting.load(Ordering::Relaxed) >= RECORDS_QUEUED_MAX {
            return false;
        }
        let count = records.len();
        self.waiting.fetch_add(count, Ordering::Relaxed);
        let message = Message::Fetched { records, covered };
        let sent = self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.try_send(message).is_ok());
        if !sent {
            self.waiting.fetch_sub(count, Ordering::Relaxed);
        }
        sent
    }

    /// Writes what is queued and ends the thread. Blocks until that is done.
    pub(super) fn end(&self) {
        if let Some(queue) = &self.queue {
            // The thread takes messages until it ends, so there will be room.
            drop(queue.send(Message::End));
        }
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}

/// Starts the thread.
pub(super) fn start(store: Store, limits: HistoryLimits) -> HistoryFeed {
    let (queue, messages) = sync_channel(QUEUED_MAX);
    let waiting = Arc::new(AtomicUsize::new(0));
    let taken = waiting.clone();
    let run = move || {
        let mut writer = Writer {
            store,
            waiting: taken,
            limits,
            count: 0,
            flushed: Duration::ZERO,
            dirty: false,
        };
        if let Err(error) = writer.run(&messages) {
            tracing::error!(%error, "history is written no more");
        }
    };
    match std::thread::Builder::new()
        .name("history".to_owned())
        .spawn(run)
    {
        Ok(thread) => HistoryFeed {
            queue: Some(queue),
            newest: Arc::default(),
            waiting,
            thread: Arc::new(Mutex::new(Some(thread))),
        },
        Err(error) => {
            tracing::error!(%error, "this node keeps no history");
            HistoryFeed::off()
        }
    }
}

struct Writer {
    store: Store,
    /// See [`HistoryFeed::waiting`].
    waiting: Arc<AtomicUsize>,
    limits: HistoryLimits,
    count: u64,
    flushed: Duration,
    dirty: bool,
}

impl Writer {
    fn run(&mut self, messages: &Receiver<Message>) -> io::Result<()> {
        self.count = self.store.count();
        loop {
            let first = match messages.recv_timeout(FLUSH_EVERY) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut change = Change::new();
            let mut ends = false;
            let mut next = first;
            while let Some(message) = next {
                if let Message::Applied { records, .. } | Message::Fetched { records, .. } =
                    &message
                {
                    self.waiting.fetch_sub(records.len(), Ordering::Relaxed);
                }
                match message {
                    Message::Applied {
                        after,
                        upto,
                        records,
                    } => {
                        records.into_iter().for_each(|record| change.add(record));
                        change.cover(after + 1, upto);
                    }
                    Message::Fetched { records, covered } => {
                        records.into_iter().for_each(|record| change.add(record));
                        covered.into_iter().for_each(|(a, b)| change.cover(a, b));
                    }
                    Message::End => ends = true,
                }
                let more = !ends && change.records() < RECORDS_PER_WRITE;
                next = if more { messages.try_recv().ok() } else { None };
                self.dirty = true;
            }
            if self.dirty {
                self.count += self.store.write(change)?;
                self.prune()?;
            }
            if ends {
                break;
            }
            self.flush_now_and_then()?;
        }
        self.store.flush()
    }

    fn flush_now_and_then(&mut self) -> io::Result<()> {
        let now = clock::since_boot();
        if self.dirty && now.saturating_sub(self.flushed) >= FLUSH_EVERY {
            self.store.flush()?;
            self.flushed = now;
            self.dirty = false;
        }
        Ok(())
    }

    /// Keeps the limits, a few records at a time.
    fn prune(&mut self) -> io::Result<()> {
        let over = self.count.saturating_sub(self.limits.records_max);
        if over > 0 {
            let count = usize::try_from(over)
                .unwrap_or(PRUNED_AT_ONCE)
                .min(PRUNED_AT_ONCE);
            self.count -= self.store.prune(count, |_| true)?;
        }
        let age = u64::try_from(self.limits.age_max.as_millis()).unwrap_or(u64::MAX);
        let oldest = clock::wall().0.saturating_sub(age);
        let is_old = |record: &pb::HistoryRecord| {
            let granted = record::from_pb(record.clone()).and_then(|record| record.granted);
            granted.is_none_or(|granted| granted.since.0 < oldest)
        };
        self.count -= self.store.prune(PRUNED_AT_ONCE, is_old)?.min(self.count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_wait_are_limited_however_few_batches_bring_them() {
        let (queue, _messages) = sync_channel(QUEUED_MAX);
        let feed = HistoryFeed {
            queue: Some(queue),
            newest: Arc::default(),
            waiting: Arc::default(),
            thread: Arc::default(),
        };
        let records = vec![pb::HistoryRecord::default(); 100_000];
        assert!(feed.fetched(records.clone(), Vec::new()));
        assert!(feed.fetched(records.clone(), Vec::new()));
        assert!(!feed.fetched(records, Vec::new()));
    }
}
