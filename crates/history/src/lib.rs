//! History: who held a token, from when to when, and why it ended.
//!
//! It is an index derived from applied entries and decides nothing. A thread of its own writes it
//! in batches and nothing waits for it. An answer names the log indices that the index covers.
//!
//! No failure of the index ends a node. When the disk is full, or the index cannot be opened, the
//! thread retries until it can; events wait in memory meanwhile, up to a limit. A damaged index, or
//! one that makes its store panic, is set aside, and a new one is filled from peers. Queries fail in time with an error that may be
//! retried, and [`History::figures`] shows the state.
//!
//! A node may index entries before its own disk has them. They are committed all the same, so
//! what the index says stays true; after a crash they are applied and indexed once more.

mod chain;
mod dir;
mod feed;
mod ground;
mod health;
mod keeper;
mod ranges;
mod read;
mod record;
mod store;
#[cfg(test)]
mod tests;
mod trial;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName, WallTime};
use ringfence_proto::raft as pb;
use tokio::sync::{mpsc, oneshot};

use dir::Dir;
pub use feed::HistoryFeed;
use ground::{Ground, Machine};
pub use health::{HistoryFigures, HistoryState};
use keeper::{Keeper, Pace, Slot};
use read::Readers;
pub use record::{HistoryEnd, HistoryRecord};

/// The most records of one answer.
pub const HISTORY_RECORDS_MAX: usize = 1_000;
/// How long a query may take; then it fails and may be repeated.
pub const HISTORY_QUERY_MAX: Duration = Duration::from_secs(3);
/// The room on the disk, in bytes, below which history is not recorded: the last of it belongs to
/// the log.
pub const HISTORY_ROOM_MIN: u64 = 16 << 20;
const DIR: &str = "history";

/// How much history is kept; what is over either limit is dropped, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// The most grants that are kept; 10,000,000 by default.
    pub records_max: u64,
    /// How long after its beginning a grant is remembered, by the wall clock.
    pub age_max: Duration,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            records_max: 10_000_000,
            age_max: Duration::from_secs(30 * 24 * 60 * 60),
        }
    }
}

/// A query of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryQuery {
    /// The grants of a lease, newest first, at most `limit`, which is at most
    /// [`HISTORY_RECORDS_MAX`].
    Name {
        /// Name of the lease, matched exactly.
        name: LeaseName,
        /// The most records wanted.
        limit: usize,
    },
    /// The grant with this token.
    Token(FencingToken),
}

/// The records that match a query, and the part of the log that they cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryAnswer {
    /// The grants, newest first.
    pub records: Vec<HistoryRecord>,
    /// The log indices that the index covers, first and last, sorted.
    pub covered: Vec<(u64, u64)>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The index cannot be read at present; the call may be repeated.
    #[error("the history cannot be read: {why}")]
    Unavailable {
        /// The error in words, for an operator.
        why: String,
    },
}

/// The clocks of the node that keeps the history. They schedule writes and age out records; no
/// promise depends on them.
#[derive(Clone, Copy)]
pub struct Clock {
    /// Time since boot. It never goes back.
    pub since_boot: fn() -> Duration,
    /// Wall-clock time; it may jump, and is used to age out records only.
    pub wall: fn() -> WallTime,
}

/// The history of one node.
pub struct History {
    feed: HistoryFeed,
    /// The readers of the open index.
    readers: Slot,
    since_boot: fn() -> Duration,
    /// Notified when the thread has let go of the directory.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

impl History {
    /// Opens the index in `data_dir`, or begins to retry: this never fails.
    #[must_use]
    pub fn open(data_dir: &Path, limits: HistoryLimits, clock: Clock) -> (Arc<Self>, HistoryFeed) {
        Self::open_on(Box::new(Machine), data_dir, limits, (clock, Pace::STANDARD))
    }

    fn open_on(
        ground: Box<dyn Ground>,
        data_dir: &Path,
        limits: HistoryLimits,
        time: (Clock, Pace),
    ) -> (Arc<Self>, HistoryFeed) {
        let feed = HistoryFeed::new(false);
        let readers = Slot::default();
        let dir = Dir::new(data_dir.join(DIR));
        let (shared, slot) = (feed.shared.clone(), readers.clone());
        let mut keeper = Keeper::new(dir, ground, limits, time, shared, slot);
        let _serves = keeper.try_open();
        let (ended, end) = oneshot::channel();
        let thread = std::thread::Builder::new().name("history".to_owned());
        let started = thread.spawn(move || keeper.run(ended));
        let Err(error) = started else {
            let history = Self {
                feed: feed.clone(),
                readers,
                since_boot: time.0.since_boot,
                ended: Mutex::new(Some(end)),
            };
            return (Arc::new(history), feed);
        };
        tracing::error!(%error, "this node keeps no history: its thread cannot be started");
        Self::none()
    }

    /// The history of a node that keeps none.
    #[must_use]
    pub fn none() -> (Arc<Self>, HistoryFeed) {
        let feed = HistoryFeed::off();
        let history = Self {
            feed: feed.clone(),
            readers: Slot::default(),
            since_boot: || Duration::ZERO,
            ended: Mutex::default(),
        };
        (Arc::new(history), feed)
    }

    fn readers(&self) -> Result<Arc<Readers>, HistoryError> {
        let slot = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        slot.clone().ok_or_else(|| HistoryError::Unavailable {
            why: self.feed.shared.health.why(),
        })
    }

    /// The state of the index and figures since the start.
    #[must_use]
    pub fn figures(&self) -> HistoryFigures {
        let now = (self.since_boot)();
        self.feed.shared.health.figures(now)
    }

    /// Looks something up, within [`HISTORY_QUERY_MAX`].
    ///
    /// # Errors
    /// [`HistoryError`] if the index cannot be read at present.
    pub async fn query(&self, query: HistoryQuery) -> Result<HistoryAnswer, HistoryError> {
        let shared = self.feed.shared.clone();
        let look = move |store: &store::Store| match &query {
            HistoryQuery::Name { name, limit } => shared.look(
                |noted, _| noted == name.as_str(),
                |change| read::of_name(store, change, name, (*limit).min(HISTORY_RECORDS_MAX)),
            ),
            HistoryQuery::Token(token) => {
                let token = token.get();
                shared.look(
                    |_, noted| noted == token,
                    |change| read::of_token(store, change, token),
                )
            }
        };
        self.readers()?.read(&self.feed.shared, look).await
    }

    /// The log indices that the index should cover and does not, sorted: what the node skipped
    /// when it installed a snapshot, or could not record. A peer may have them.
    ///
    /// # Errors
    /// [`HistoryError`] if the index cannot be read at present.
    pub async fn gaps(&self) -> Result<Vec<(u64, u64)>, HistoryError> {
        let shared = self.feed.shared.clone();
        let newest = self.feed.newest();
        let look = move |store: &store::Store| {
            shared.look(|_, _| false, |change| store.gaps(&change, newest))
        };
        let gaps = self.readers()?.read(&self.feed.shared, look).await?;
        self.feed.shared.health.misses(&gaps);
        Ok(gaps)
    }

    /// Adds what a peer knows. Waits until there is room for it, which may take as long as the
    /// index cannot be written.
    pub async fn add(&self, part: pb::HistoryPart) {
        let covered = part.covered.iter().map(|r| (r.first, r.last)).collect();
        self.feed.fetched(part.records, covered).await;
    }

    /// What this node knows of a range of log indices, in parts, for a peer. Each part says which
    /// indices it completes. The receiver may be dropped at any time.
    #[must_use]
    pub fn parts(
        &self,
        first: u64,
        last: u64,
    ) -> mpsc::Receiver<Result<pb::HistoryPart, HistoryError>> {
        let (parts, sent) = mpsc::channel(4);
        match self.readers() {
            Ok(readers) => readers.parts(&self.feed.shared, (first, last), parts),
            Err(error) => {
                parts.try_send(Err(error)).ok();
            }
        }
        sent
    }

    /// Writes what waits and lets go of the directory. A disk that hangs can make this take for
    /// ever: bound it.
    pub async fn close(&self) {
        let ended = self.ended.lock();
        let ended = ended.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended {
            self.feed.shared.end();
            // A thread that panicked has let go as well.
            let _told = ended.await;
        }
    }
}
