//! The way of what happened to the index, on which nobody ever waits, and the thread at its end.
//!
//! What was noted stays in memory for some seconds before it is written: most grants have ended by
//! then, and the index writes whole leaves, so that fewer writes cost much less. Whoever looks
//! something up sees what waits too.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use ringfence_core::Event;
use ringfence_proto::raft as pb;

use super::store::{Change, Store};
use super::{HistoryLimits, ranges, record};
use crate::clock;
use crate::events::Position;

/// Events and records that may wait; what comes when they do becomes a gap, which is named and
/// filled.
const WAITING_MAX: usize = 131_072;
/// So many are put into the index at once, however short they have waited.
const WRITTEN_AT: usize = 8_192;
/// How long what was noted waits at most, and what is in the index until it is on disk.
const WRITE_EVERY: Duration = Duration::from_secs(5);
/// How many old records are dropped at a time.
const PRUNED_AT_ONCE: usize = 4_096;
/// How far the thread stands back behind those that serve requests, as `nice` counts.
const NICENESS: i32 = 10;

/// Takes note of what is applied. Clones share it.
#[derive(Clone)]
pub(crate) struct HistoryFeed {
    shared: Arc<Shared>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    work: Condvar,
    /// The newest index that was handed over.
    newest: AtomicU64,
    /// Held while what waits moves into the index: whoever looks something up sees it in one or
    /// the other.
    moving: RwLock<()>,
}

/// What is to be written.
#[derive(Default)]
struct Waiting {
    /// Nothing is taken: there is no index, or no longer.
    off: bool,
    events: Vec<(u64, Event)>,
    fetched: Vec<pb::HistoryRecord>,
    covered: Vec<(u64, u64)>,
    ends: bool,
}

impl Waiting {
    fn len(&self) -> usize {
        self.events.len() + self.fetched.len()
    }

    fn clear(&mut self) {
        self.events.clear();
        self.fetched = Vec::new();
        self.covered.clear();
    }

    fn has_room(&self) -> bool {
        !self.off && self.len() < WAITING_MAX
    }

    fn add_to(&self, change: &mut Change, wanted: impl Fn(&str, u64) -> bool) {
        for (index, event) in &self.events {
            if record::grant_of(event).is_some_and(|(name, token)| wanted(name, token)) {
                record::of_event(*index, event)
                    .into_iter()
                    .for_each(|record| change.add(record));
            }
        }
        let fetched = self.fetched.iter();
        fetched
            .filter(|record| wanted(&record.name, record.token))
            .for_each(|record| change.add(record.clone()));
        for (first, last) in &self.covered {
            change.cover(*first, *last);
        }
    }
}

impl HistoryFeed {
    fn new(off: bool) -> Self {
        let waiting = Waiting {
            off,
            ..Waiting::default()
        };
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::new(waiting),
                work: Condvar::new(),
                newest: AtomicU64::new(0),
                moving: RwLock::new(()),
            }),
            thread: Arc::default(),
        }
    }

    /// A feed that leads nowhere.
    pub(crate) fn off() -> Self {
        Self::new(true)
    }

    /// Notes the events of the entries up to `upto`, all that come behind the last call's.
    pub(crate) fn applied(&self, upto: u64, events: &[(Position, Event)]) {
        let after = self.shared.newest.swap(upto, Ordering::Relaxed);
        let mut waiting = self.shared.waiting();
        if !waiting.has_room() {
            return;
        }
        let noted = events
            .iter()
            .filter(|(_, event)| record::grant_of(event).is_some());
        waiting
            .events
            .extend(noted.map(|(at, event)| (at.index, event.clone())));
        ranges::add(&mut waiting.covered, after + 1, upto);
        self.shared.wake_if_due(&waiting);
    }

    /// Notes that the state jumped to `index`: what happened on the way is not known here.
    pub(crate) fn skipped_to(&self, index: u64) {
        self.shared.newest.store(index, Ordering::Relaxed);
    }

    /// The newest index that was handed over.
    pub(super) fn newest(&self) -> u64 {
        self.shared.newest.load(Ordering::Relaxed)
    }

    /// Adds what a peer knows. `covered` may be empty while more is to come.
    pub(super) fn fetched(
        &self,
        records: Vec<pb::HistoryRecord>,
        covered: Vec<(u64, u64)>,
    ) -> bool {
        let mut waiting = self.shared.waiting();
        if !waiting.has_room() {
            return false;
        }
        waiting
            .fetched
            .extend(records.into_iter().map(record::alone));
        for (first, last) in covered {
            ranges::add(&mut waiting.covered, first, last);
        }
        self.shared.wake_if_due(&waiting);
        true
    }

    /// Looks at the index and at what waits of the grants that `wanted` takes by name and token,
    /// as of one moment.
    pub(super) fn look<R>(
        &self,
        wanted: impl Fn(&str, u64) -> bool,
        look: impl FnOnce(Change) -> R,
    ) -> R {
        let moving = self.shared.moving.read();
        let _still = moving.unwrap_or_else(PoisonError::into_inner);
        let mut change = Change::new();
        {
            let waiting = self.shared.waiting();
            waiting.add_to(&mut change, wanted);
        }
        look(change)
    }

    /// Writes what waits and ends the thread. Blocks until that is done.
    pub(super) fn end(&self) {
        self.shared.waiting().ends = true;
        self.shared.work.notify_one();
        let thread = self.thread.lock();
        let thread = thread.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_if_due(&self, waiting: &Waiting) {
        if waiting.len() >= WRITTEN_AT {
            self.work.notify_one();
        }
    }

    /// Waits until something is to be written, or the end; says whether it is the end.
    fn wait(&self, until: Duration) -> bool {
        let mut waiting = self.waiting();
        loop {
            let left = until.saturating_sub(clock::since_boot());
            if waiting.ends || waiting.len() >= WRITTEN_AT || left.is_zero() {
                return waiting.ends;
            }
            let woken = self.work.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What waits. `spare` keeps the memory for the next ones.
    fn take(&self, spare: &mut Waiting) -> Change {
        {
            let mut waiting = self.waiting();
            (spare.ends, spare.off) = (waiting.ends, waiting.off);
            std::mem::swap(&mut *waiting, spare);
        }
        let mut change = Change::new();
        spare.add_to(&mut change, |_, _| true);
        spare.clear();
        change
    }
}

/// Starts the thread.
pub(super) fn start(store: Store, limits: HistoryLimits) -> HistoryFeed {
    let feed = HistoryFeed::new(false);
    let shared = feed.shared.clone();
    let run = move || {
        let mut writer = Writer {
            store,
            limits,
            count: 0,
            spare: Waiting::default(),
        };
        if let Err(error) = writer.run(&shared) {
            tracing::error!(%error, "history is written no more");
            let mut waiting = shared.waiting();
            *waiting = Waiting {
                off: true,
                ..Waiting::default()
            };
        }
    };
    match std::thread::Builder::new()
        .name("history".to_owned())
        .spawn(run)
    {
        Ok(thread) => {
            *feed.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
            feed
        }
        Err(error) => {
            tracing::error!(%error, "this node keeps no history");
            HistoryFeed::off()
        }
    }
}

struct Writer {
    store: Store,
    limits: HistoryLimits,
    /// Records in the index.
    count: u64,
    spare: Waiting,
}

impl Writer {
    fn run(&mut self, shared: &Shared) -> io::Result<()> {
        stand_back();
        self.count = self.store.count();
        let mut flush_at = clock::since_boot() + WRITE_EVERY;
        loop {
            let ends = shared.wait(flush_at);
            self.write(shared)?;
            if ends {
                return self.store.flush();
            }
            let now = clock::since_boot();
            if now >= flush_at {
                self.prune()?;
                self.store.flush()?;
                flush_at = now + WRITE_EVERY;
            }
        }
    }

    fn write(&mut self, shared: &Shared) -> io::Result<()> {
        let moving = shared.moving.write();
        let _moving = moving.unwrap_or_else(PoisonError::into_inner);
        let change = shared.take(&mut self.spare);
        if !change.is_empty() {
            self.count += self.store.write(change)?;
        }
        Ok(())
    }

    /// Keeps the limits, some records at a time.
    fn prune(&mut self) -> io::Result<()> {
        while let over = self.count.saturating_sub(self.limits.records_max)
            && over > 0
        {
            let count = usize::try_from(over)
                .unwrap_or(PRUNED_AT_ONCE)
                .min(PRUNED_AT_ONCE);
            let dropped = self.store.prune(count, |_| true)?;
            self.count -= dropped.min(self.count);
            if dropped == 0 {
                break;
            }
        }
        let age = u64::try_from(self.limits.age_max.as_millis()).unwrap_or(u64::MAX);
        let oldest = clock::wall().0.saturating_sub(age);
        let is_old = |record: &pb::HistoryRecord| {
            let granted = record::from_pb(record.clone()).and_then(|record| record.granted);
            granted.is_none_or(|granted| granted.since.0 < oldest)
        };
        loop {
            let dropped = self.store.prune(PRUNED_AT_ONCE, is_old)?;
            self.count -= dropped.min(self.count);
            if dropped < PRUNED_AT_ONCE as u64 {
                return Ok(());
            }
        }
    }
}

/// Lets every thread that serves requests run first.
fn stand_back() {
    // On Linux this is the niceness of the calling thread alone.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "the history thread keeps its priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_wait_are_limited() {
        let feed = HistoryFeed::new(false);
        let records = vec![pb::HistoryRecord::default(); 100_000];
        assert!(feed.fetched(records.clone(), Vec::new()));
        assert!(feed.fetched(records.clone(), Vec::new()));
        assert!(!feed.fetched(records, vec![(1, 5)]));
        feed.look(|_, _| true, |change| assert_eq!(change.covered(), []));
    }

    #[test]
    fn what_waits_is_seen_before_it_is_written() {
        let feed = HistoryFeed::new(false);
        let record = pb::HistoryRecord {
            token: 7,
            ..pb::HistoryRecord::default()
        };
        assert!(feed.fetched(vec![record], vec![(1, 5)]));
        let known = |token| {
            feed.look(
                |_, it| it == token,
                |mut change| change.take(token).is_some(),
            )
        };
        assert!(known(7));
        assert!(!known(8));
    }
}
