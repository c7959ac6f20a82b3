//! A list that mostly has one element, and then needs no memory of its own.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::slice;

/// See the module. A clone of a longer list shares it until one of the two changes.
#[derive(Clone, Debug)]
pub(crate) enum Few<T> {
    One(T),
    /// None at all, or two and more.
    Other(Option<Arc<Vec<T>>>),
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self::Other(None)
    }
}

impl<T> Few<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => slice::from_ref(one),
            Self::Other(Some(many)) => many,
            Self::Other(None) => &[],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }
}

impl<T: Clone> Few<T> {
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        match self {
            Self::One(one) => (at == 0).then_some(one),
            Self::Other(Some(many)) => Arc::make_mut(many).get_mut(at),
            Self::Other(None) => None,
        }
    }

    /// Inserts before the element at `at`, or at the end if there is none.
    pub(crate) fn insert(&mut self, at: usize, new: T) {
        if let Self::Other(Some(many)) = self {
            let many = Arc::make_mut(many);
            many.insert(at.min(many.len()), new);
            return;
        }
        *self = match core::mem::take(self) {
            Self::One(one) if at == 0 => Self::Other(Some(Arc::new(alloc::vec![new, one]))),
            Self::One(one) => Self::Other(Some(Arc::new(alloc::vec![one, new]))),
            Self::Other(_) => Self::One(new),
        };
    }

    pub(crate) fn remove(&mut self, at: usize) {
        self.retain_in(at..at + 1, |_| false);
    }

    /// Takes out those in the range that are not to be kept.
    pub(crate) fn retain_in(&mut self, range: Range<usize>, keep: impl Fn(&T) -> bool) {
        if self.as_slice()[range.clone()].iter().all(&keep) {
            return;
        }
        let Self::Other(Some(many)) = self else {
            *self = Self::default();
            return;
        };
        let many = Arc::make_mut(many);
        let mut kept = range.start;
        for at in range.clone() {
            if keep(&many[at]) {
                many.swap(kept, at);
                kept += 1;
            }
        }
        many.drain(kept..range.end);
        if many.len() < 2 {
            *self = many.pop().map_or(Self::Other(None), Self::One);
        } else if many.capacity() > 4 * many.len() {
            many.shrink_to(2 * many.len());
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut all: Vec<T> = all.into_iter().collect();
        match all.len() {
            0 => Self::default(),
            1 => all.pop().map_or_else(Self::default, Self::One),
            _ => Self::Other(Some(Arc::new(all))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_what_a_vector_does() {
        let (mut few, mut model) = (Few::default(), Vec::new());
        for (at, new) in [(0, 'a'), (0, 'b'), (2, 'c'), (1, 'd')] {
            few.insert(at, new);
            model.insert(at, new);
            assert_eq!(few.as_slice(), model);
        }
        let shared = few.clone();
        for at in [2, 0, 1, 0] {
            few.remove(at);
            model.remove(at);
            assert_eq!(few.as_slice(), model);
        }
        assert_eq!(shared.as_slice(), ['b', 'd', 'a', 'c']);
    }

    #[test]
    fn only_the_range_is_looked_through() {
        let mut few: Few<u8> = (1..=6).collect();
        few.retain_in(1..5, |n| n % 2 == 1);
        assert_eq!(few.as_slice(), [1, 3, 5, 6]);
        few.retain_in(1..4, |_| false);
        assert_eq!(few.as_slice(), [1]);
        assert!(matches!(few, Few::One(1)), "it needs no memory any more");
        few.retain_in(0..1, |_| false);
        assert_eq!(few.len(), 0);
    }
}
