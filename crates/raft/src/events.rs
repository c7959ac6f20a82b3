//! The newest events of this node, for watchers: a ring with a position for each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_core::Event;
use tokio::sync::watch;

/// How many events a node keeps for watchers that lag.
pub const EVENTS_KEPT: usize = 65_536;

/// A place in the stream of events: behind the `n`th event of the entry at `index`, or, with
/// `n` = 0, behind an entry that brought none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The log index of an entry.
    pub index: u64,
    /// Counts the events of that entry from 1.
    pub n: u32,
}

impl Position {
    /// Behind everything that the entry at `index` and those before it brought.
    #[must_use]
    pub const fn end_of(index: u64) -> Self {
        Self { index, n: u32::MAX }
    }
}

/// What [`EventFeed::since`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The events, each with its own position.
    pub events: Vec<(Position, Event)>,
    /// Ask from here next time.
    pub upto: Position,
}

/// The events asked for are gone: read the present state, then go on behind [`EventFeed::head`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("events up to index {} are no longer kept", oldest.index)]
pub struct Compacted {
    /// The oldest position that can still be asked from.
    pub oldest: Position,
}

/// The ring itself, filled by whoever applies entries.
#[derive(Debug)]
pub(crate) struct EventLog {
    kept: Mutex<Kept>,
    head: watch::Sender<Position>,
    capacity: usize,
}

#[derive(Debug)]
struct Kept {
    events: VecDeque<(Position, Event)>,
    /// Everything up to here is gone.
    floor: Position,
}

impl EventLog {
    /// An empty ring of a node whose state stands at `index`.
    pub(crate) fn new(index: u64, capacity: usize) -> Self {
        let at = Position::end_of(index);
        let kept = Kept {
            events: VecDeque::new(),
            floor: at,
        };
        Self {
            kept: Mutex::new(kept),
            head: watch::Sender::new(at),
            capacity,
        }
    }

    /// Adds the events of applied entries, in order, and moves the head behind the last of them.
    pub(crate) fn publish(&self, events: Vec<(Position, Event)>, head: Position) {
        if !events.is_empty() {
            let mut kept = self.lock();
            kept.events.extend(events);
            while kept.events.len() > self.capacity {
                if let Some((position, _)) = kept.events.pop_front() {
                    kept.floor = position;
                }
            }
        }
        let _ = self.head.send_replace(head);
    }

    /// Forgets everything: the state was replaced by that of `index`, and nobody here knows what
    /// happened in between.
    pub(crate) fn compact(&self, index: u64) {
        let at = Position::end_of(index);
        let mut kept = self.lock();
        kept.events.clear();
        kept.floor = at;
        drop(kept);
        let _ = self.head.send_replace(at);
    }

    pub(crate) fn feed(self: &Arc<Self>) -> EventFeed {
        EventFeed {
            log: self.clone(),
            moved: self.head.subscribe(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a node's newest events. Clones wait on their own.
#[derive(Debug, Clone)]
pub struct EventFeed {
    log: Arc<EventLog>,
    moved: watch::Receiver<Position>,
}

impl EventFeed {
    /// Everything up to here has been applied.
    #[must_use]
    pub fn head(&self) -> Position {
        *self.log.head.borrow()
    }

    /// At most `max` events behind `from`. A position in the future has none yet.
    ///
    /// # Errors
    /// [`Compacted`] if events behind `from` are gone.
    pub fn since(&self, from: Position, max: usize) -> Result<Batch, Compacted> {
        // The head is read first: events that come meanwhile are left for the next call.
        let head = self.head();
        let kept = self.log.lock();
        if from < kept.floor {
            return Err(Compacted { oldest: kept.floor });
        }
        let start = kept
            .events
            .partition_point(|(position, _)| *position <= from);
        let wanted = kept.events.range(start..).take(max);
        let events: Vec<_> = wanted.cloned().collect();
        let drained = start + events.len() == kept.events.len();
        let last = events.last().map_or(from, |(position, _)| *position);
        let upto = if drained { last.max(head) } else { last };
        Ok(Batch { events, upto })
    }

    /// Returns when the head has moved since the last call, or at once if it already has; it
    /// moves with every applied entry, also with those that bring no event.
    pub async fn changed(&mut self) {
        // The sender lives as long as `log`, which this feed holds.
        let _ = self.moved.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::SessionId;

    fn event(n: u64) -> Event {
        Event::SessionOpened {
            session: SessionId::new(n).unwrap(),
        }
    }

    fn at(index: u64, n: u32) -> Position {
        Position { index, n }
    }

    #[test]
    fn events_come_in_order_and_once() {
        let log = Arc::new(EventLog::new(0, 100));
        let feed = log.feed();
        log.publish(vec![(at(3, 1), event(1)), (at(3, 2), event(2))], at(3, 2));
        log.publish(Vec::new(), at(4, 0));
        let first = feed.since(Position::end_of(0), 1).unwrap();
        assert_eq!(
            first,
            Batch {
                events: vec![(at(3, 1), event(1))],
                upto: at(3, 1)
            }
        );
        let rest = feed.since(first.upto, 10).unwrap();
        assert_eq!(
            rest,
            Batch {
                events: vec![(at(3, 2), event(2))],
                upto: at(4, 0)
            }
        );
        assert!(feed.since(rest.upto, 10).unwrap().events.is_empty());
    }

    #[test]
    fn a_reader_that_lags_too_far_is_told() {
        let log = Arc::new(EventLog::new(0, 2));
        let feed = log.feed();
        for index in 1..=3 {
            log.publish(vec![(at(index, 1), event(index))], at(index, 1));
        }
        assert_eq!(
            feed.since(Position::end_of(0), 9),
            Err(Compacted { oldest: at(1, 1) })
        );
        assert_eq!(feed.since(at(1, 1), 9).unwrap().events.len(), 2);
    }

    #[test]
    fn a_replaced_state_compacts_everything() {
        let log = Arc::new(EventLog::new(0, 100));
        let feed = log.feed();
        log.publish(vec![(at(1, 1), event(1))], at(1, 1));
        log.compact(50);
        assert_eq!(
            feed.since(at(1, 1), 9),
            Err(Compacted {
                oldest: Position::end_of(50)
            })
        );
        assert_eq!(feed.head(), Position::end_of(50));
        assert_eq!(feed.since(feed.head(), 9).unwrap().events, Vec::new());
    }

    #[test]
    fn a_position_in_the_future_has_no_events_yet() {
        let log = Arc::new(EventLog::new(5, 100));
        let batch = log.feed().since(at(9, 1), 9).unwrap();
        assert_eq!(
            batch,
            Batch {
                events: Vec::new(),
                upto: at(9, 1)
            }
        );
    }

    #[tokio::test]
    async fn a_moved_head_wakes_a_reader_also_without_events() {
        let log = Arc::new(EventLog::new(0, 100));
        let mut feed = log.feed();
        log.publish(Vec::new(), at(1, 0));
        feed.changed().await;
        assert_eq!(feed.head(), at(1, 0));
    }
}
