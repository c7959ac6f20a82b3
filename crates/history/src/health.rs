//! What is known about the index: whether it can be used, and how often it could not.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whether the index can be used at present.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HistoryState {
    /// This node keeps no history.
    #[default]
    Off,
    /// The index is written and read, and covers what it should.
    Serving,
    /// The index is written and read, but log indices are missing that a peer may have. Answers
    /// name what is covered.
    Filling,
    /// The index is read but not written: the disk has too little room. What happens meanwhile
    /// waits in memory, up to a limit.
    NoRoom,
    /// The index cannot be opened, read or written, or has not answered for a minute; the node
    /// keeps trying.
    Unavailable,
}

impl HistoryState {
    /// Every state, for metrics that show one series per state.
    pub const ALL: [Self; 5] = [
        Self::Off,
        Self::Serving,
        Self::Filling,
        Self::NoRoom,
        Self::Unavailable,
    ];

    /// Its name, as metrics show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Serving => "serving",
            Self::Filling => "filling",
            Self::NoRoom => "no_room",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Figures about the history since the node was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistoryFigures {
    /// Whether the index can be used at present.
    pub state: HistoryState,
    /// Failed attempts to open, read or write the index.
    pub failures: u64,
    /// Damaged indices that were set aside.
    pub set_aside: u64,
    /// Log indices that the index should cover and does not, as of the last look.
    pub missing: u64,
    /// Events that were not recorded because too many waited: they are part of `missing`.
    pub dropped: u64,
}

/// Shared by the thread that keeps the index and by those who ask.
#[derive(Debug, Default)]
pub(crate) struct Health {
    now: Mutex<Now>,
    failures: AtomicU64,
    set_aside: AtomicU64,
    missing: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// How often the index was made durable.
    pub(crate) flushes: AtomicU64,
    /// Milliseconds since boot at which the thread began to work on the index, 0 while it waits.
    busy: AtomicU64,
}

/// A thread that works on the index for longer than this waits for a disk that hangs, or a store.
const BUSY_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Now {
    state: HistoryState,
    why: String,
}

impl Health {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes since when the thread works on the index.
    pub(crate) fn works_since(&self, since_boot: Option<Duration>) {
        let millis = since_boot.map_or(0, millis);
        self.busy.store(millis, Ordering::Relaxed);
    }

    pub(crate) fn figures(&self, since_boot: Duration) -> HistoryFigures {
        let missing = self.missing.load(Ordering::Relaxed);
        let busy = self.busy.load(Ordering::Relaxed);
        let hangs = busy > 0 && millis(since_boot) > busy + millis(BUSY_MAX);
        let state = match self.now().state {
            HistoryState::Serving if hangs => HistoryState::Unavailable,
            HistoryState::Serving if missing > 0 => HistoryState::Filling,
            state => state,
        };
        HistoryFigures {
            state,
            failures: self.failures.load(Ordering::Relaxed),
            set_aside: self.set_aside.load(Ordering::Relaxed),
            missing,
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// Why the index cannot be used.
    pub(crate) fn why(&self) -> String {
        let now = self.now();
        match now.state {
            HistoryState::Off => "this node keeps no history".to_owned(),
            _ => now.why.clone(),
        }
    }

    pub(crate) fn serves(&self) {
        let mut now = self.now();
        if !matches!(now.state, HistoryState::Serving | HistoryState::Off) {
            tracing::info!("the history is recorded again");
        }
        *now = Now {
            state: HistoryState::Serving,
            why: String::new(),
        };
    }

    /// The disk has too little room; true if it had enough before.
    pub(crate) fn has_no_room(&self, why: &dyn fmt::Display) -> bool {
        let mut now = self.now();
        let first = now.state != HistoryState::NoRoom;
        if first {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        *now = Now {
            state: HistoryState::NoRoom,
            why: why.to_string(),
        };
        first
    }

    pub(crate) fn failed(&self, why: &dyn fmt::Display) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        *self.now() = Now {
            state: HistoryState::Unavailable,
            why: why.to_string(),
        };
    }

    pub(crate) fn was_set_aside(&self) {
        self.set_aside.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn misses(&self, gaps: &[(u64, u64)]) {
        let missing = gaps.iter().map(|(first, last)| last - first + 1).sum();
        self.missing.store(missing, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whether the bytes of the index are to blame: then trying again cannot help. What is not known
/// to be damage counts as an error that may pass, since a damaged index loses what it held.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::Unsupported
    )
}

/// An error of the index's bytes.
pub(crate) fn damage(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_may_pass_are_no_damage() {
        use rustix::io::Errno;
        let passing = [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::ACCESS,
            Errno::PERM,
            Errno::ROFS,
            Errno::IO,
            Errno::NOMEM,
            Errno::WOULDBLOCK,
        ];
        for errno in passing {
            assert!(!is_damage(&io::Error::from(errno)), "{errno}");
        }
        assert!(!is_damage(&io::Error::other("no thread")));
        assert!(is_damage(&damage("crc mismatch")));
        assert!(is_damage(&io::Error::from(io::ErrorKind::UnexpectedEof)));
    }

    #[test]
    fn an_index_with_gaps_is_filling() {
        let health = Health::default();
        assert_eq!(health.figures(Duration::ZERO).state, HistoryState::Off);
        health.serves();
        health.misses(&[(1, 4), (9, 9)]);
        let figures = health.figures(Duration::ZERO);
        assert_eq!((figures.state, figures.missing), (HistoryState::Filling, 5));
        health.misses(&[]);
        let state = |seconds| health.figures(Duration::from_secs(seconds)).state;
        assert_eq!(state(5), HistoryState::Serving);
        health.works_since(Some(Duration::from_secs(5)));
        assert_eq!(state(60), HistoryState::Serving);
        assert_eq!(state(66), HistoryState::Unavailable, "it hangs");
        health.works_since(None);
        assert_eq!(state(66), HistoryState::Serving);
    }
}
