//! A queue that shares as [`Tree`] does. Places are numbered, and none is given out twice.

use crate::tree::Tree;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Line<T> {
    places: Tree<u64, T>,
    next: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            places: Tree::default(),
            next: 1,
        }
    }
}

impl<T: Clone> Line<T> {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// What stands at this place.
    pub(crate) fn get(&self, place: u64) -> Option<&T> {
        self.places.get(&place)
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.places.first().map(|(_, one)| one)
    }

    /// Puts one at the end and returns its place, which is not 0.
    pub(crate) fn push(&mut self, one: T) -> u64 {
        let place = self.next;
        self.next += 1;
        self.places.insert(place, one);
        place
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.places.pop_first().map(|(_, one)| one)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().map(|(_, one)| one)
    }

    /// Takes out what stands at this place.
    pub(crate) fn remove(&mut self, place: u64) -> Option<T> {
        self.places.remove(&place)
    }

    pub(crate) fn get_mut(&mut self, place: u64) -> Option<&mut T> {
        self.places.get_mut(&place)
    }
}
