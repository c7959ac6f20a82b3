//! Numbers that look random and repeat.

use std::ops::Range;
use std::time::Duration;

/// A small generator (SplitMix64): equal seeds give equal sequences.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator of its own for one purpose: what is drawn there changes nothing here, so that
    /// adding a draw to one part of a run leaves the others as they were.
    #[must_use]
    pub fn fork(&self, purpose: &str) -> Self {
        let mixed = purpose.bytes().fold(self.state, |mixed, byte| {
            mix(mixed.wrapping_mul(0x0000_0100_0000_01B3) ^ u64::from(byte))
        });
        Self::new(mixed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A number of `range`; its beginning if it is empty.
    pub const fn within(&mut self, range: Range<u64>) -> u64 {
        let width = range.end.saturating_sub(range.start);
        let drawn = self.next();
        if width == 0 {
            return range.start;
        }
        // The bias is below 2^-32 for every width that is asked for here.
        range.start + drawn % width
    }

    /// True in `per_mille` of a thousand cases.
    pub const fn chance(&mut self, per_mille: u64) -> bool {
        self.within(0..1_000) < per_mille
    }

    /// A time of `range`, in whole microseconds.
    pub fn time(&mut self, range: Range<Duration>) -> Duration {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.within(micros(range.start)..micros(range.end)))
    }

    /// One of `items`; `None` if there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let at = self.within(0..items.len() as u64);
        items.get(usize::try_from(at).ok()?)
    }
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_not_moved_by_draws_elsewhere() {
        let parent = Random::new(7);
        let (mut a, mut b) = (parent.fork("links"), parent.fork("disks"));
        let first = a.next();
        assert_ne!(first, b.next());
        assert_eq!(parent.fork("links").next(), first);
    }

    #[test]
    fn numbers_stay_within_their_range() {
        let mut random = Random::new(1);
        assert!((0..1_000).all(|_| (3..9).contains(&random.within(3..9))));
        assert_eq!(random.within(5..5), 5);
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
