//! What happened, on its way to the index: no caller ever waits for it.
//!
//! What was noted stays in memory for some seconds before it is written: most grants have ended by
//! then, and the index writes whole leaves, so that fewer writes cost much less. A query sees what
//! waits, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use ringfence_core::Event;
use ringfence_proto::raft as pb;
use tokio::sync::Notify;

use crate::health::Health;
use crate::store::Change;
use crate::{Clock, ranges, record};

/// Events and records that may wait; what comes when they do becomes a gap, which is named and
/// filled.
pub(crate) const WAITING_MAX: usize = 131_072;
/// Records of peers are taken only while fewer than this wait, so that they never cost an event
/// its room.
pub(crate) const FETCHED_WAITING_MAX: usize = 16_384;
/// So many are put into the index at once, however short they have waited.
const WRITTEN_AT: usize = 8_192;

/// Takes note of what is applied. Clones share it.
#[derive(Clone)]
pub struct HistoryFeed {
    pub(crate) shared: Arc<Shared>,
}

/// Shared by those who note, those who ask, and the thread that writes.
#[derive(Default)]
pub(crate) struct Shared {
    waiting: Mutex<Waiting>,
    work: Condvar,
    /// Notified when what waits was taken.
    room: Notify,
    /// The newest index that was handed over.
    newest: AtomicU64,
    /// Held while what waits moves into the index: a query sees it in one or the other.
    pub(crate) moving: RwLock<()>,
    pub(crate) health: Health,
}

/// What is to be written.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Nothing is taken: this node keeps no history.
    off: bool,
    events: Vec<(u64, Event)>,
    fetched: Vec<pb::HistoryRecord>,
    covered: Vec<(u64, u64)>,
    /// What a reader found wrong with the index.
    trouble: Option<std::io::Error>,
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

/// What the writing thread was woken for.
pub(crate) enum Woken {
    /// Something is to be written, or it is time to flush.
    Work,
    /// A reader found this.
    Trouble(std::io::Error),
    End,
}

impl HistoryFeed {
    pub(crate) fn new(off: bool) -> Self {
        let shared = Shared::default();
        shared.waiting().off = off;
        Self {
            shared: Arc::new(shared),
        }
    }

    /// A feed that leads nowhere.
    #[must_use]
    pub fn off() -> Self {
        Self::new(true)
    }

    /// Notes the events of the entries up to `upto`, all that come behind the last call's, each
    /// with the log index of its entry. It never waits for the disk.
    pub fn applied<'a>(&self, upto: u64, events: impl IntoIterator<Item = (u64, &'a Event)>) {
        let after = self.shared.newest.swap(upto, Ordering::Relaxed);
        let mut waiting = self.shared.waiting();
        if waiting.off {
            return;
        }
        let noted = events
            .into_iter()
            .filter(|(_, event)| record::grant_of(event).is_some());
        if waiting.len() >= WAITING_MAX {
            let dropped = noted.count() as u64;
            let dropped_before = &self.shared.health.dropped;
            dropped_before.fetch_add(dropped, Ordering::Relaxed);
            return;
        }
        waiting
            .events
            .extend(noted.map(|(index, event)| (index, event.clone())));
        ranges::add(&mut waiting.covered, after + 1, upto);
        self.shared.wake_if_due(&waiting);
    }

    /// Notes that the state jumped to `index`: what happened on the way is not known here.
    pub fn skipped_to(&self, index: u64) {
        self.shared.newest.store(index, Ordering::Relaxed);
    }

    /// The newest index that was handed over.
    pub(crate) fn newest(&self) -> u64 {
        self.shared.newest.load(Ordering::Relaxed)
    }

    /// Adds what a peer knows and the ranges that are covered with it. Waits for room.
    pub(crate) async fn fetched(&self, records: Vec<pb::HistoryRecord>, covered: Vec<(u64, u64)>) {
        let mut records = Some(records);
        loop {
            let room = self.shared.room.notified();
            tokio::pin!(room);
            // From here on no notification is missed.
            let _first = room.as_mut().enable();
            {
                let mut waiting = self.shared.waiting();
                if waiting.off {
                    return;
                }
                if waiting.len() < FETCHED_WAITING_MAX {
                    let records = records.take().unwrap_or_default();
                    waiting
                        .fetched
                        .extend(records.into_iter().map(record::alone));
                    for (first, last) in &covered {
                        ranges::add(&mut waiting.covered, *first, *last);
                    }
                    self.shared.wake_if_due(&waiting);
                    return;
                }
            }
            room.await;
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

    /// Tells the writing thread what a reader found wrong with the index.
    pub(crate) fn report(&self, trouble: std::io::Error) {
        self.waiting().trouble.get_or_insert(trouble);
        self.work.notify_one();
    }

    /// Forgets what readers of an earlier index reported.
    pub(crate) fn forget_trouble(&self) {
        self.waiting().trouble = None;
    }

    /// Asks the writing thread to end.
    pub(crate) fn end(&self) {
        self.waiting().ends = true;
        self.work.notify_one();
    }

    /// Waits until `until`, until much waits (if `eager`), or for trouble or the end.
    pub(crate) fn wait(&self, clock: Clock, until: Duration, eager: bool) -> Woken {
        let mut waiting = self.waiting();
        loop {
            if waiting.ends {
                return Woken::End;
            }
            if let Some(trouble) = waiting.trouble.take() {
                return Woken::Trouble(trouble);
            }
            let left = until.saturating_sub((clock.since_boot)());
            if left.is_zero() || (eager && waiting.len() >= WRITTEN_AT) {
                return Woken::Work;
            }
            let woken = self.work.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What waits. `spare` keeps the memory for the next ones.
    pub(crate) fn take(&self, spare: &mut Waiting) -> Change {
        {
            let mut waiting = self.waiting();
            (spare.ends, spare.off) = (waiting.ends, waiting.off);
            spare.trouble = waiting.trouble.take();
            std::mem::swap(&mut *waiting, spare);
        }
        self.room.notify_waiters();
        let mut change = Change::new();
        spare.add_to(&mut change, |_, _| true);
        spare.clear();
        change
    }

    /// Looks at the index and at what waits of the grants that `wanted` takes by name and token,
    /// as of one moment.
    pub(crate) fn look<R>(
        &self,
        wanted: impl Fn(&str, u64) -> bool,
        look: impl FnOnce(Change) -> R,
    ) -> R {
        let moving = self.moving.read();
        let _still = moving.unwrap_or_else(PoisonError::into_inner);
        let mut change = Change::new();
        {
            let waiting = self.waiting();
            waiting.add_to(&mut change, wanted);
        }
        look(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn records_of_peers_wait_for_room_and_leave_some_to_events() {
        let feed = HistoryFeed::new(false);
        let records = vec![pb::HistoryRecord::default(); FETCHED_WAITING_MAX];
        feed.fetched(records.clone(), vec![(1, 4)]).await;
        let more = feed.fetched(records, vec![(5, 9)]);
        tokio::pin!(more);
        let wait = Duration::from_millis(20);
        assert!(tokio::time::timeout(wait, more.as_mut()).await.is_err());
        let look = |change: Change| change.covered().to_vec();
        assert_eq!(feed.shared.look(|_, _| true, look), [(1, 4)]);

        assert!(!feed.shared.take(&mut Waiting::default()).is_empty());
        more.await;
        assert_eq!(feed.shared.look(|_, _| true, look), [(5, 9)]);
    }

    #[tokio::test]
    async fn what_waits_is_seen_before_it_is_written() {
        let feed = HistoryFeed::new(false);
        let record = pb::HistoryRecord {
            token: 7,
            ..pb::HistoryRecord::default()
        };
        feed.fetched(vec![record], vec![(1, 5)]).await;
        let known = |token| {
            feed.shared.look(
                |_, it| it == token,
                |mut change| change.take(token).is_some(),
            )
        };
        assert!(known(7));
        assert!(!known(8));
    }

    #[test]
    fn events_that_find_no_room_are_counted_and_become_a_gap() {
        let feed = HistoryFeed::new(false);
        let ended = Event::Ended {
            name: ringfence_core::LeaseName::parse("a").unwrap(),
            token: ringfence_core::FencingToken::new(1).unwrap(),
            session: ringfence_core::SessionId::new(1).unwrap(),
            identity: ringfence_core::Identity::parse("me").unwrap(),
            cause: ringfence_core::EndCause::Expired,
            at: ringfence_core::WallTime(0),
        };
        feed.applied(1, (0..WAITING_MAX).map(|_| (1, &ended)));
        feed.applied(2, [(2, &ended)]);
        assert_eq!(feed.shared.health.figures(Duration::ZERO).dropped, 1);
        let covered = feed.shared.look(|_, _| false, |c| c.covered().to_vec());
        assert_eq!(covered, [(1, 1)]);
        assert_eq!(feed.newest(), 2);
    }
}
