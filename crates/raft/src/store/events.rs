//! The newest events of this node, for watchers: a ring with a position for each.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use ringfence_core::{EndCause, Event, SessionEnd};
use ringfence_planted::{Bug, planted};
use tokio::sync::watch;

/// The most events that a node keeps for watchers that lag.
pub const EVENTS_KEPT: usize = 65_536;
/// The most memory for them, in bytes: about so many events that bring no holder data, and a
/// quarter of them if each brings half of what it may.
pub const EVENTS_BYTES_KEPT: usize = 10 << 20;

/// The most changes of term that a node remembers for positions; older terms are not known.
const TERMS_KEPT: usize = 1_024;

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

/// The ring itself, filled by the task that applies entries.
#[derive(Debug)]
pub(crate) struct EventLog {
    kept: Mutex<Kept>,
    /// The first known index of each term, in order.
    terms: RwLock<VecDeque<(u64, u64)>>,
    head: watch::Sender<Position>,
    limits: Limits,
}

/// How much the ring keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Limits {
    pub(crate) const STANDARD: Self = Self {
        events: EVENTS_KEPT,
        bytes: EVENTS_BYTES_KEPT,
    };
}

#[derive(Debug)]
struct Kept {
    events: VecDeque<(Position, Event)>,
    /// What they take.
    bytes: usize,
    /// Everything up to here is gone.
    floor: Position,
}

impl EventLog {
    /// An empty ring of a node whose state stands at `index`.
    pub(crate) fn new(index: u64, limits: Limits) -> Self {
        let at = Position::end_of(index);
        let kept = Kept {
            events: VecDeque::new(),
            bytes: 0,
            floor: at,
        };
        Self {
            kept: Mutex::new(kept),
            terms: RwLock::default(),
            head: watch::Sender::new(at),
            limits,
        }
    }

    /// Notes the term of an applied entry, before its events are published.
    pub(crate) fn note_term(&self, index: u64, term: u64) {
        let newest = {
            let terms = self.terms.read();
            terms.back().map(|(_, term)| *term)
        };
        if newest == Some(term) {
            return;
        }
        let mut terms = self.terms.write();
        if terms.len() == TERMS_KEPT {
            terms.pop_front();
        }
        terms.push_back((index, term));
    }

    /// The term of the entry at `index`; `None` if it is not known here.
    fn term_of(&self, index: u64) -> Option<u64> {
        let terms = self.terms.read();
        let next = terms.partition_point(|(first, _)| *first <= index);
        let (_, term) = terms.get(next.checked_sub(1)?)?;
        (index <= self.head.borrow().index).then_some(*term)
    }

    /// Adds the events of applied entries, in order, and moves the head behind the last of them.
    pub(crate) fn publish(&self, events: Vec<(Position, Event)>, head: Position) {
        if !events.is_empty() {
            let mut kept = self.kept.lock();
            for (position, event) in events {
                // Before it comes in, or the ring would reserve twice what it may hold.
                kept.make_room(self.limits, cost(&event));
                kept.bytes += cost(&event);
                kept.events.push_back((position, event));
            }
        }
        let _ = self.head.send_replace(head);
    }

    /// Forgets everything: the state was replaced by that of the entry at `index`, of this term,
    /// and what happened in between is not known here.
    pub(crate) fn compact(&self, index: u64, term: u64) {
        let at = Position::end_of(index);
        {
            let mut terms = self.terms.write();
            terms.clear();
            terms.push_back((index, term));
        }
        let mut kept = self.kept.lock();
        kept.events.clear();
        kept.bytes = 0;
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
}

impl Kept {
    /// Drops the oldest until there is room for one more of so many bytes.
    fn make_room(&mut self, limits: Limits, bytes: usize) {
        while self.events.len() >= limits.events || self.bytes + bytes > limits.bytes {
            let Some((position, event)) = self.events.pop_front() else {
                return;
            };
            self.bytes -= cost(&event);
            self.floor = position;
        }
    }
}

/// What an event takes in memory, as if no other value held its texts.
fn cost(event: &Event) -> usize {
    let texts = match event {
        Event::Granted(granted) => {
            granted.name.as_str().len()
                + granted.identity.as_str().len()
                + granted.data.as_bytes().len()
        }
        Event::Ended {
            name,
            identity,
            cause,
            ..
        } => {
            let cause = match cause {
                EndCause::Revoked { operator, reason } | EndCause::Evicted { operator, reason } => {
                    operator.len() + reason.len()
                }
                EndCause::Released
                | EndCause::Expired
                | EndCause::Closed
                | EndCause::Transferred { .. } => 0,
                EndCause::PodEnded { uid, .. } => uid.as_str().len(),
            };
            name.as_str().len() + identity.as_str().len() + cause
        }
        Event::WaitEnded { name, .. } | Event::Forgotten { name, .. } => name.as_str().len(),
        Event::SessionEnded {
            cause: SessionEnd::Evicted { operator, reason },
            ..
        } => operator.len() + reason.len(),
        Event::SessionEnded {
            cause: SessionEnd::PodEnded { uid, .. },
            ..
        } => uid.as_str().len(),
        Event::SessionEnded { .. } | Event::SessionOpened { .. } => 0,
    };
    size_of::<(Position, Event)>() + texts
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

    /// The Raft term of the entry at `index`; `None` if it was not applied here, or is forgotten.
    #[must_use]
    pub fn term_of(&self, index: u64) -> Option<u64> {
        self.log.term_of(index)
    }

    /// At most `max` events behind `from`. A position in the future has none yet.
    ///
    /// # Errors
    /// [`Compacted`] if events behind `from` are gone.
    pub fn since(&self, from: Position, max: usize) -> Result<Batch, Compacted> {
        // The head is read first: events that come meanwhile are left for the next call.
        let head = self.head();
        let kept = self.log.kept.lock();
        if from < kept.floor && !planted(Bug::WatchHidesItsGap) {
            return Err(Compacted { oldest: kept.floor });
        }
        let start = kept
            .events
            .partition_point(|(position, _)| *position <= from)
            .saturating_add(usize::from(planted(Bug::WatchSkipsOne)));
        let start = start.min(kept.events.len());
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
        self.moved.changed().await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::{FencingToken, Identity, LeaseName, SessionId, WallTime};

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
        let log = Arc::new(EventLog::new(0, Limits::STANDARD));
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
        let limits = Limits {
            events: 2,
            ..Limits::STANDARD
        };
        let log = Arc::new(EventLog::new(0, limits));
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
    fn large_events_leave_room_for_fewer() {
        let identity = |n: usize| Event::Ended {
            name: LeaseName::parse("a").unwrap(),
            token: FencingToken::new(1).unwrap(),
            session: SessionId::new(1).unwrap(),
            identity: Identity::parse(&"i".repeat(n)).unwrap(),
            cause: EndCause::Expired,
            at: WallTime(0),
        };
        let limits = Limits {
            bytes: 4 * cost(&identity(0)),
            ..Limits::STANDARD
        };
        let log = Arc::new(EventLog::new(0, limits));
        let publish = |index, event| log.publish(vec![(at(index, 1), event)], at(index, 1));
        (1..=5).for_each(|index| publish(index, identity(0)));
        assert_eq!(log.feed().since(at(1, 1), 9).unwrap().events.len(), 4);
        publish(6, identity(cost(&identity(0)) / 2));
        assert_eq!(log.feed().since(at(3, 1), 9).unwrap().events.len(), 3);
        assert_eq!(
            log.feed().since(at(2, 1), 9),
            Err(Compacted { oldest: at(3, 1) })
        );
        log.compact(7, 1);
        assert_eq!(log.kept.lock().bytes, 0);
    }

    #[test]
    fn a_replaced_state_compacts_everything() {
        let log = Arc::new(EventLog::new(0, Limits::STANDARD));
        let feed = log.feed();
        log.publish(vec![(at(1, 1), event(1))], at(1, 1));
        log.compact(50, 1);
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
        let log = Arc::new(EventLog::new(5, Limits::STANDARD));
        let batch = log.feed().since(at(9, 1), 9).unwrap();
        assert_eq!(
            batch,
            Batch {
                events: Vec::new(),
                upto: at(9, 1)
            }
        );
    }

    #[test]
    fn the_terms_of_applied_entries_are_known() {
        let log = Arc::new(EventLog::new(0, Limits::STANDARD));
        let feed = log.feed();
        for (index, term) in [(1, 1), (2, 1), (3, 4), (4, 4)] {
            log.note_term(index, term);
            log.publish(Vec::new(), at(index, 0));
        }
        assert_eq!(feed.term_of(0), None);
        assert_eq!(feed.term_of(2), Some(1));
        assert_eq!(feed.term_of(4), Some(4));
        assert_eq!(feed.term_of(5), None, "not applied yet");
        log.compact(9, 5);
        assert_eq!(feed.term_of(4), None);
        assert_eq!(feed.term_of(9), Some(5));
        for index in 10..10 + 2 * TERMS_KEPT as u64 {
            log.note_term(index, index);
        }
        assert_eq!(log.terms.read().len(), TERMS_KEPT);
    }

    #[tokio::test]
    async fn a_moved_head_wakes_a_reader_also_without_events() {
        let log = Arc::new(EventLog::new(0, Limits::STANDARD));
        let mut feed = log.feed();
        log.publish(Vec::new(), at(1, 0));
        feed.changed().await;
        assert_eq!(feed.head(), at(1, 0));
    }
}
