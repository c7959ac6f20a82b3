//! I6, the part that concerns time: what had returned before another thing began stands before it in
//! the log.

use super::matching::Matched;
use crate::blackbox::Told;
use crate::recording::Recording;
use crate::verdict::{Report, Rule, Violation};

/// Which indices were reached at which time.
pub(super) struct Order {
    /// Ends in rising order, each with the greatest index that was answered by then, and by which
    /// operation.
    returned: Vec<(u64, u64, usize)>,
    /// Beginnings in rising order, each with the smallest index that something begun from then on
    /// got.
    begun: Vec<(u64, u64)>,
    /// Indices in rising order, each with the earliest end of what was answered there or later.
    reached: Vec<(u64, u64)>,
}

impl Order {
    pub(super) fn of(recording: &Recording, matched: &Matched) -> Self {
        let mut returned = Vec::new();
        let mut begun = Vec::new();
        let mut reached = Vec::new();
        for (at, operation) in recording.operations.iter().enumerate() {
            let (Some(place), Some(end)) = (matched.places[at], operation.end) else {
                continue;
            };
            returned.push((end, place.answered, at));
            begun.push((operation.begin, place.first));
            reached.push((place.answered, end));
        }
        returned.sort_unstable();
        let mut greatest = (0, 0);
        for (_, index, at) in &mut returned {
            greatest = greatest.max((*index, *at));
            (*index, *at) = greatest;
        }
        begun.sort_unstable();
        let mut smallest = u64::MAX;
        for (_, index) in begun.iter_mut().rev() {
            smallest = smallest.min(*index);
            *index = smallest;
        }
        reached.sort_unstable();
        let mut earliest = u64::MAX;
        for (_, end) in reached.iter_mut().rev() {
            earliest = earliest.min(*end);
            *end = earliest;
        }
        Self {
            returned,
            begun,
            reached,
        }
    }

    /// What had been answered before `t`: the greatest index and its operation.
    fn before(&self, t: u64) -> Option<(u64, usize)> {
        let count = self.returned.partition_point(|&(end, ..)| end < t);
        let (_, index, at) = *self.returned.get(count.checked_sub(1)?)?;
        Some((index, at))
    }

    /// The index after which (or at which) and the index before which something was applied that
    /// began at `begin` and had returned at `end`. For an entry of its own the first is excluded.
    pub(super) fn window(&self, begin: u64, end: u64) -> (u64, u64) {
        let after = self.before(begin).map_or(0, |(index, _)| index);
        let from = self.begun.partition_point(|&(begun, _)| begun <= end);
        let before = self.begun.get(from).map_or(u64::MAX, |&(_, index)| index);
        (after, before)
    }

    /// A time by which the entry at `index` had been applied.
    pub(super) fn applied_by(&self, index: u64) -> Option<u64> {
        let from = self
            .reached
            .partition_point(|&(reached, _)| reached < index);
        self.reached.get(from).map(|&(_, end)| end)
    }

    pub(super) fn check(
        &self,
        recording: &Recording,
        matched: &Matched,
        told: &Told,
        report: &mut Report,
    ) {
        for (at, operation) in recording.operations.iter().enumerate() {
            let (Some(place), Some((index, earlier))) =
                (matched.places[at], self.before(operation.begin))
            else {
                continue;
            };
            if index < place.first {
                continue;
            }
            let earlier = &recording.operations[earlier];
            report.violated(Violation {
                rule: Rule::I6,
                t: operation.end.unwrap_or(operation.begin),
                lease: None,
                operations: vec![earlier.id, operation.id],
                what: format!(
                    "{} stands in the log at entry {}, and yet it began only after entry {index} had \
                     been answered: {}",
                    told.operation(operation),
                    place.first,
                    told.operation(earlier)
                ),
            });
        }
    }
}
