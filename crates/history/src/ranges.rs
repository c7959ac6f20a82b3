//! Ranges of log indices, both ends included, sorted and apart from each other.

/// Adds a range and joins what overlaps or touches it.
pub(crate) fn add(ranges: &mut Vec<(u64, u64)>, first: u64, last: u64) {
    if first > last {
        return;
    }
    let (mut first, mut last) = (first, last);
    ranges.retain(|(a, b)| {
        let apart = *b < first.saturating_sub(1) || *a > last.saturating_add(1);
        if !apart {
            first = first.min(*a);
            last = last.max(*b);
        }
        apart
    });
    let at = ranges.partition_point(|(a, _)| *a < first);
    ranges.insert(at, (first, last));
}

/// The parts of `ranges` between `first` and `last`.
pub(crate) fn within(ranges: &[(u64, u64)], first: u64, last: u64) -> Vec<(u64, u64)> {
    let cut = ranges
        .iter()
        .map(|(a, b)| ((*a).max(first), (*b).min(last)));
    cut.filter(|(a, b)| a <= b).collect()
}

/// What `ranges` leave out between `first` and `last`.
pub(crate) fn gaps(ranges: &[(u64, u64)], first: u64, last: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut next = first;
    for (a, b) in within(ranges, first, last) {
        if a > next {
            gaps.push((next, a - 1));
        }
        next = b.saturating_add(1);
    }
    if next <= last {
        gaps.push((next, last));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges = Vec::new();
        for (first, last) in [(5, 9), (20, 30), (1, 3), (10, 12), (4, 4), (7, 6)] {
            add(&mut ranges, first, last);
        }
        assert_eq!(ranges, [(1, 12), (20, 30)]);
        add(&mut ranges, 11, 25);
        assert_eq!(ranges, [(1, 30)]);
    }

    #[test]
    fn gaps_are_what_is_left_out() {
        assert_eq!(gaps(&[(3, 5), (9, 9)], 1, 12), [(1, 2), (6, 8), (10, 12)]);
        assert_eq!(gaps(&[(3, 5)], 4, 5), []);
        assert_eq!(gaps(&[], 2, 3), [(2, 3)]);
        assert_eq!(within(&[(1, 4), (8, 9)], 3, 8), [(3, 4), (8, 8)]);
    }
}
