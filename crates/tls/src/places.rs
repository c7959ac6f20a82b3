//! Who is connected to a port, and which connection makes room when it is full.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// What happens to a connection that arrives while its port is full. In either case the oldest
/// connection that has not yet sent the first bytes of its protocol makes room, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It is closed: established connections are worth more than new ones.
    Refuse,
    /// The oldest connection makes room: requests are short, so the oldest is an idle one.
    ReplaceOldest,
}

/// Counters of one port, for metrics.
#[derive(Debug, Default)]
pub struct PortFigures {
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    displaced: AtomicU64,
    timed_out: AtomicU64,
    accept_errors: AtomicU64,
}

impl PortFigures {
    /// Connections that are open now, handshakes included.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections accepted since the start, also those that were refused at once.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections closed on arrival because the port was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Connections closed to make room for a newer one.
    #[must_use]
    pub fn displaced(&self) -> u64 {
        self.displaced.load(Ordering::Relaxed)
    }

    /// Connections closed because the other side kept silent, or took nothing, for too long.
    #[must_use]
    pub fn timed_out(&self) -> u64 {
        self.timed_out.load(Ordering::Relaxed)
    }

    /// Calls of `accept` that failed, as they do when the process has too many files open.
    #[must_use]
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    pub(crate) fn count_timeout(&self) {
        self.timed_out.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_accept_error(&self) {
        self.accept_errors.fetch_add(1, Ordering::Relaxed);
    }
}

/// The places of one port.
pub(crate) struct Places {
    max: usize,
    when_full: WhenFull,
    figures: Arc<PortFigures>,
    taken: Mutex<Taken>,
}

/// Connections by the order of their arrival. Dropping a sender cuts its connection off.
#[derive(Default)]
struct Taken {
    next: u64,
    unproven: BTreeMap<u64, oneshot::Sender<()>>,
    proven: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One connection's place; it is free again when this is dropped.
pub(crate) struct Place {
    number: u64,
    places: Arc<Places>,
}

/// Resolves when the connection has to make room.
pub(crate) type CutOff = oneshot::Receiver<()>;

impl Places {
    pub(crate) fn new(max: usize, when_full: WhenFull, figures: Arc<PortFigures>) -> Arc<Self> {
        Arc::new(Self {
            max: max.max(1),
            when_full,
            figures,
            taken: Mutex::default(),
        })
    }

    /// A place for a new connection; `None` if the port is full and nothing makes room.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<(Place, CutOff)> {
        let mut taken = self.lock();
        let mut displaced = None;
        if taken.unproven.len() + taken.proven.len() >= self.max {
            displaced = taken.unproven.pop_first();
            if displaced.is_none() && self.when_full == WhenFull::ReplaceOldest {
                displaced = taken.proven.pop_first();
            }
            if displaced.is_none() {
                drop(taken);
                self.figures.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            self.figures.displaced.fetch_add(1, Ordering::Relaxed);
            self.figures.open.fetch_sub(1, Ordering::Relaxed);
        }
        let (cut, cut_off) = oneshot::channel();
        let number = taken.next;
        taken.next += 1;
        taken.unproven.insert(number, cut);
        self.figures.open.fetch_add(1, Ordering::Relaxed);
        drop(taken);
        // Wakes the connection that has lost its place, so outside of the lock.
        drop(displaced);
        let places = Arc::clone(self);
        Some((Place { number, places }, cut_off))
    }

    pub(crate) fn figures(&self) -> &Arc<PortFigures> {
        &self.figures
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics while it holds the lock, so that the maps are whole.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The connection has sent the first bytes of its protocol.
    pub(crate) fn prove(&self) {
        let mut taken = self.places.lock();
        if let Some(cut) = taken.unproven.remove(&self.number) {
            taken.proven.insert(self.number, cut);
        }
    }

    pub(crate) fn figures(&self) -> &PortFigures {
        &self.places.figures
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        let unproven = taken.unproven.remove(&self.number);
        let left = unproven.or_else(|| taken.proven.remove(&self.number));
        drop(taken);
        // One that was displaced has left the count already.
        if left.is_some() {
            self.places.figures.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(max: usize, when_full: WhenFull) -> Arc<Places> {
        Places::new(max, when_full, Arc::default())
    }

    #[test]
    fn a_full_port_refuses_and_keeps_those_that_speak() {
        let places = places(2, WhenFull::Refuse);
        let (first, mut first_cut) = places.enter().unwrap();
        let (second, mut second_cut) = places.enter().unwrap();
        first.prove();
        second.prove();

        assert!(places.enter().is_none());
        assert!(
            first_cut
                .try_recv()
                .is_err_and(|e| e == oneshot::error::TryRecvError::Empty)
        );
        assert!(
            second_cut
                .try_recv()
                .is_err_and(|e| e == oneshot::error::TryRecvError::Empty)
        );
        assert_eq!(
            (places.figures().open(), places.figures().refused()),
            (2, 1)
        );

        drop(first);
        assert_eq!(places.figures().open(), 1);
        assert!(places.enter().is_some());
    }

    #[test]
    fn the_oldest_silent_connection_makes_room() {
        let places = places(2, WhenFull::Refuse);
        let (silent, mut silent_cut) = places.enter().unwrap();
        let (speaks, mut speaks_cut) = places.enter().unwrap();
        speaks.prove();

        let (_new, _) = places.enter().unwrap();

        assert_eq!(
            silent_cut.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        );
        assert_eq!(
            speaks_cut.try_recv(),
            Err(oneshot::error::TryRecvError::Empty)
        );
        drop(silent);
        assert_eq!(
            (places.figures().open(), places.figures().displaced()),
            (2, 1)
        );
    }

    #[test]
    fn where_requests_are_short_the_oldest_connection_makes_room() {
        let places = places(1, WhenFull::ReplaceOldest);
        let (old, mut old_cut) = places.enter().unwrap();
        old.prove();

        let (_new, mut new_cut) = places.enter().unwrap();

        assert_eq!(
            old_cut.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        );
        assert_eq!(new_cut.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    }
}
