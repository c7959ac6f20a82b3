//! Keep-alives that wait to be gathered: a line for each source, so that none waits behind all
//! that another one has asked for.
//!
//! Sources are served in turn, one request each. One that had nothing waiting comes before the next
//! of those that have much, so a client that keeps its sessions alive from time to time waits for
//! one turn, however many requests others have under way. A request with many sessions takes several
//! turns to come up, so a client with few waits behind none of those either, from however many
//! connections they come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ringfence_planted::{Bug, planted};
use tokio::sync::Notify;

/// Who asks: a connection of a client, a stream of another node, or this node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeepAliveSource(u64);

impl KeepAliveSource {
    /// Callers that do not tell themselves from each other.
    pub(crate) const UNNAMED: Self = Self(0);

    /// A source unlike all others of this process.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The work that one turn of a source is worth, in sessions and losses.
const TURN_WEIGHT: u32 = 256;
/// The most turns that one request takes to come up. Without an end a holder of many sessions would
/// wait for one request of every other source at each of its turns, longer than its TTL.
const TURNS_MAX: u32 = 8;

/// The requests that wait, by source, and whose turn it is.
#[derive(Debug)]
pub(super) struct Lines<T> {
    waiting: Mutex<Waiting<T>>,
    /// Notified when something came.
    came: Notify,
    max: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    /// None is empty.
    lines: BTreeMap<KeepAliveSource, Line<T>>,
    /// Sources that had nothing waiting before; each stands here or in `busy`, once.
    fresh: VecDeque<KeepAliveSource>,
    /// Sources that were served and have more.
    busy: VecDeque<KeepAliveSource>,
    /// The last one served was a fresh one, though there were busy ones.
    fresh_before: bool,
    count: usize,
    closed: bool,
}

/// What one source has waiting.
#[derive(Debug)]
struct Line<T> {
    items: VecDeque<Waiter<T>>,
    /// What its turns were worth since the last one that served it.
    earned: u32,
}

#[derive(Debug)]
struct Waiter<T> {
    item: T,
    weight: u32,
    bounded: bool,
}

impl<T> Lines<T> {
    /// Lines with at most so many in all of them together; for twice as many see [`Lines::push`].
    pub(super) fn new(max: usize) -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                lines: BTreeMap::new(),
                fresh: VecDeque::new(),
                busy: VecDeque::new(),
                fresh_before: false,
                count: 0,
                closed: false,
            }),
            came: Notify::new(),
            max,
        }
    }

    /// Puts it at the end of its source's line, or gives it back if too many wait or the lines are
    /// closed. `weight` is the work that it is, in sessions and losses. `bounded` says that its source,
    /// in which many others come, never has more than so many waiting: each of its turns serves one item.
    ///
    /// A flood keeps no other source out: full lines still take one item of a source that has nothing
    /// waiting, and the items of bounded sources, up to as many again.
    pub(super) fn push(
        &self,
        source: KeepAliveSource,
        item: T,
        weight: u32,
        bounded: bool,
    ) -> Result<(), T> {
        let mut waiting = self.waiting.lock();
        let apart = bounded || !waiting.lines.contains_key(&source);
        let max = match apart && !planted(Bug::FullLinesKeepAllOut) {
            true => self.max.saturating_mul(2),
            false => self.max,
        };
        if waiting.closed || waiting.count >= max {
            return Err(item);
        }
        let waiter = Waiter {
            item,
            weight,
            bounded,
        };
        waiting.push(source, waiter);
        drop(waiting);
        self.came.notify_one();
        Ok(())
    }

    /// The next one, as soon as there is one. Only one caller may wait at a time; it loses nothing
    /// by giving up.
    pub(super) async fn next(&self) -> T {
        loop {
            let came = self.came.notified();
            if let Some((_, item)) = self.waiting.lock().next() {
                return item;
            }
            came.await;
        }
    }

    /// Drops what waits, and takes nothing any more.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.count = 0;
        let dropped = std::mem::take(&mut waiting.lines);
        (waiting.fresh, waiting.busy) = (VecDeque::new(), VecDeque::new());
        drop(waiting);
        // A caller that is notified by that may ask again.
        drop(dropped);
    }
}

impl<T> Waiting<T> {
    fn push(&mut self, source: KeepAliveSource, waiter: Waiter<T>) {
        let line = self.lines.entry(source).or_insert_with(|| Line {
            items: VecDeque::new(),
            earned: 0,
        });
        if line.items.is_empty() {
            self.fresh.push_back(source);
        }
        line.items.push_back(waiter);
        self.count += 1;
    }

    /// Each turn but the one that serves adds to what a source has earned, so there is an end.
    fn next(&mut self) -> Option<(KeepAliveSource, T)> {
        loop {
            // In turn, so that ever new sources keep none from being served either.
            let fresh_now = match (self.fresh.is_empty(), self.busy.is_empty()) {
                (false, false) => !self.fresh_before,
                (fresh_is_empty, _) => !fresh_is_empty,
            };
            self.fresh_before = fresh_now;
            let turn = match fresh_now {
                true => &mut self.fresh,
                false => &mut self.busy,
            };
            let source = turn.pop_front()?;
            let line = self.lines.get_mut(&source)?;
            let first = line.items.front()?;
            line.earned = line.earned.saturating_add(TURN_WEIGHT);
            let is_due = first.bounded || first.weight.min(TURNS_MAX * TURN_WEIGHT) <= line.earned;
            if !is_due && !planted(Bug::LargeKeepAlivesAtOnce) {
                self.busy.push_back(source);
                continue;
            }
            let Waiter { item, .. } = line.items.pop_front()?;
            line.earned = 0;
            self.count -= 1;
            if line.items.is_empty() {
                self.lines.remove(&source);
            } else {
                self.busy.push_back(source);
            }
            return Some((source, item));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FLOOD: usize = 10_000;

    fn source(n: u64) -> KeepAliveSource {
        KeepAliveSource(n)
    }

    fn next<T>(lines: &Lines<T>) -> Option<(u64, T)> {
        lines
            .waiting
            .lock()
            .next()
            .map(|(KeepAliveSource(n), item)| (n, item))
    }

    #[test]
    fn one_request_waits_for_one_turn_behind_floods_of_others() {
        let lines = Lines::new(usize::MAX);
        for flood in 1..=100 {
            for at in 0..FLOOD / 100 {
                lines.push(source(flood), at, 1, false).unwrap();
            }
        }
        // All floods have had their first turn.
        for _ in 0..300 {
            assert!(next(&lines).is_some());
        }
        lines.push(source(500), 7, 1, false).unwrap();
        let behind = (0..).take_while(|_| next(&lines) != Some((500, 7)));
        assert!(behind.count() <= 1, "it waits behind a flood");
    }

    #[test]
    fn a_small_request_waits_behind_no_large_ones_and_each_of_these_is_served() {
        let lines = Lines::new(usize::MAX);
        for flood in 1..=150 {
            lines.push(source(flood), 0, 10_000, false).unwrap();
        }
        lines.push(source(500), 7, 1, false).unwrap();
        // The first large ones have had all their turns while it was looked for.
        let before = (0..).take_while(|_| next(&lines) != Some((500, 7))).count();
        assert!(before <= 2, "{before} before the only small one");
        assert!(next(&lines).is_some_and(|(n, _)| n <= 150));
        lines.push(source(501), 7, 1, false).unwrap();
        // What another node forwards comes in one line, and is bounded there.
        lines.push(source(502), 7, 10_000, true).unwrap();
        let taken: Vec<(u64, i32)> = std::iter::from_fn(|| next(&lines)).collect();
        let place = |n: u64| taken.iter().position(|next| next.0 == n).unwrap();
        assert!(place(501) <= 2 && place(502) <= 4, "{taken:?}");
        assert_eq!(taken.len(), 151 - before, "each comes up");
        assert_eq!(lines.waiting.lock().count, 0);
    }

    #[test]
    fn a_large_request_waits_for_a_few_rounds_of_others_and_no_more() {
        const OTHERS: u64 = 40;
        let lines = Lines::new(usize::MAX);
        for other in 1..=OTHERS {
            (0..100).for_each(|at| lines.push(source(other), at, TURN_WEIGHT, false).unwrap());
        }
        lines.push(source(500), 7, 10_000, false).unwrap();
        let before = std::iter::from_fn(|| next(&lines)).take_while(|item| *item != (500, 7));
        let rounds = before.count() as u64 / OTHERS;
        assert!(rounds <= u64::from(TURNS_MAX) + 1, "{rounds}");
    }

    #[test]
    fn ever_new_sources_keep_no_old_one_waiting() {
        let lines = Lines::new(usize::MAX);
        (0..3).for_each(|at| lines.push(source(1), at, 1, false).unwrap());
        assert_eq!(next(&lines), Some((1, 0)));
        let mut served = 0;
        for new in 2..20 {
            lines.push(source(new), 0, 1, false).unwrap();
            lines.push(source(new + 100), 0, 1, false).unwrap();
            served += usize::from(next(&lines).is_some_and(|(n, _)| n == 1));
        }
        assert_eq!(served, 2);
    }

    #[test]
    fn lines_are_full_together_and_take_nothing_once_they_are_closed() {
        let lines = Lines::new(2);
        lines.push(source(1), 'a', 1, false).unwrap();
        lines.push(source(2), 'b', 1, false).unwrap();
        assert_eq!(lines.push(source(2), 'c', 1, false), Err('c'));
        assert_eq!(next(&lines), Some((1, 'a')));
        lines.push(source(2), 'c', 1, false).unwrap();
        lines.close();
        assert_eq!(next(&lines), None);
        assert_eq!(lines.push(source(1), 'd', 1, false), Err('d'));
        assert_eq!(lines.push(source(1), 'd', 1, true), Err('d'));
    }

    #[test]
    fn those_that_fill_the_lines_keep_nobody_else_out() {
        let lines = Lines::new(64);
        for at in 0..64 {
            lines.push(source(at % 4), at, 1, false).unwrap();
        }
        assert!(lines.push(source(1), 64, 1, false).is_err(), "a flood");
        lines
            .push(source(9), 7, 1, false)
            .expect("it has one waiting");
        assert!(lines.push(source(9), 8, 1, false).is_err(), "and no more");
        for at in 0..63 {
            let bounded = lines.push(source(10), at, 1, true);
            bounded.expect("another node bounds what it forwards");
        }
        assert!(
            lines.push(source(10), 63, 1, true).is_err(),
            "twice as many"
        );
        assert!(
            lines.push(source(11), 0, 1, false).is_err(),
            "twice as many"
        );
        // Neither of the two waits behind the floods.
        let taken: Vec<u64> = std::iter::from_fn(|| next(&lines))
            .map(|(n, _)| n)
            .take(12)
            .collect();
        assert!(taken.contains(&9) && taken.contains(&10), "{taken:?}");
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let lines = std::sync::Arc::new(Lines::new(9));
        let waiting = tokio::spawn({
            let lines = lines.clone();
            async move { lines.next().await }
        });
        tokio::task::yield_now().await;
        lines.push(source(4), 'x', 1, false).unwrap();
        assert_eq!(waiting.await.unwrap(), 'x');
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Each comes out once, and those of a source in their order.
        #[test]
        fn nothing_is_lost_or_overtaken_by_its_own(
            steps in proptest::collection::vec((any::<bool>(), 0..4_u64), 0..200),
        ) {
            let lines = Lines::new(usize::MAX);
            let (mut pushed, mut taken) = (vec![0_usize; 4], vec![0_usize; 4]);
            for (push, n) in steps {
                if push {
                    lines.push(source(n), pushed[n as usize], 1, false).unwrap();
                    pushed[n as usize] += 1;
                } else if let Some((n, item)) = next(&lines) {
                    prop_assert_eq!(item, taken[n as usize]);
                    taken[n as usize] += 1;
                }
            }
            while let Some((n, item)) = next(&lines) {
                prop_assert_eq!(item, taken[n as usize]);
                taken[n as usize] += 1;
            }
            prop_assert_eq!(pushed, taken);
            prop_assert_eq!(lines.waiting.lock().count, 0);
        }
    }
}
