//! An ordered map that shares: a clone costs one pointer, and what is changed afterwards, in
//! either of the two, is copied leaf by leaf at its first change.
//!
//! It is a B+ tree: entries stand in leaves, branches lead to them. Nodes are not merged, but one
//! that is empty goes; since a leaf reserves no more than [`ROOM`], sparse ones cost little.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::ops::Bound;
use core::slice;

/// The most entries of a leaf: what is copied when one of them changes for the first time after a
/// clone.
const LEAF_MAX: usize = 16;
/// The most children of a branch.
const BRANCH_MAX: usize = 64;
/// For how many more a full node reserves memory. Doubling would leave a quarter of it unused.
const ROOM: usize = 2;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Tree<K, V> {
    root: Option<Arc<Node<K, V>>>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Node<K, V> {
    /// In rising order of the keys, never empty.
    Leaf(Vec<(K, V)>),
    Branch(Children<K, V>),
}

/// In rising order and never empty. Each child stands under a key that none of its own is less
/// than, but for the first one, where lesser keys go too.
type Children<K, V> = Vec<Child<K, V>>;
type Child<K, V> = (K, Arc<Node<K, V>>);

/// What an insertion came to: the value it replaced, and a node that has to stand behind this one.
type Inserted<K, V> = (Option<V>, Option<Child<K, V>>);

impl<K, V> Default for Tree<K, V> {
    fn default() -> Self {
        Self { root: None, len: 0 }
    }
}

impl<K, V> Tree<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn iter(&self) -> Iter<'_, K, V> {
        let mut iter = Iter::default();
        if let Some(root) = &self.root {
            iter.enter(root);
        }
        iter
    }

    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Branch(children) => node = &*children.first()?.1,
                Node::Leaf(entries) => return entries.first().map(|(key, value)| (key, value)),
            }
        }
    }
}

impl<K: Ord, V> Tree<K, V> {
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Branch(children) => node = &*children[child(children, key)].1,
                Node::Leaf(entries) => {
                    let at = find(entries, key).ok()?;
                    return Some(&entries[at].1);
                }
            }
        }
    }

    /// The entries from `from` on, in order.
    pub(crate) fn iter_from<Q: Ord + ?Sized>(&self, from: Bound<&Q>) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let mut iter = Iter::default();
        let (Bound::Included(key) | Bound::Excluded(key)) = from else {
            return self.iter();
        };
        let mut next = self.root.as_deref();
        while let Some(node) = next {
            next = match node {
                Node::Branch(children) => {
                    let at = child(children, key);
                    iter.branches.push(children[at + 1..].iter());
                    Some(&*children[at].1)
                }
                Node::Leaf(entries) => {
                    let start = match (find(entries, key), from) {
                        (Ok(at), Bound::Excluded(_)) => at + 1,
                        (Ok(at) | Err(at), _) => at,
                    };
                    iter.leaf = entries[start..].iter();
                    None
                }
            };
        }
        iter
    }
}

impl<K: Ord + Clone, V: Clone> Tree<K, V> {
    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let entries = self.leaf_mut(key)?;
        let at = find(entries, key).ok()?;
        Some(&mut entries[at].1)
    }

    /// Shows each of `keys`, in their order, with its value to `look`. Keys in rising order, as those
    /// of a keep-alive are, cost one search for a run of neighbours.
    pub(crate) fn visit(&mut self, keys: &[K], mut look: impl FnMut(&K, Option<&mut V>)) {
        let mut left = keys.iter().peekable();
        while let Some(first) = left.next() {
            let leaf = self.leaf_mut(first).unwrap_or_default();
            let Ok(mut at) = find(leaf, first) else {
                look(first, None);
                continue;
            };
            look(first, Some(&mut leaf[at].1));
            while let Some((known, value)) = leaf.get_mut(at + 1)
                && let Some(key) = left.next_if(|key| *key == known)
            {
                at += 1;
                look(key, Some(value));
            }
        }
    }

    /// The entries among which `key` stands if it is there: all that there are between the first
    /// of them and the last. The keys must stay as they are.
    fn leaf_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut [(K, V)]>
    where
        K: Borrow<Q>,
    {
        let mut node = Arc::make_mut(self.root.as_mut()?);
        loop {
            match node {
                Node::Branch(children) => {
                    let at = child(children, key);
                    node = Arc::make_mut(&mut children[at].1);
                }
                Node::Leaf(entries) => return Some(entries),
            }
        }
    }

    /// Puts the value under the key and returns the one that stood there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some(root) = &mut self.root else {
            self.root = Some(Arc::new(Node::Leaf(alloc::vec![(key, value)])));
            self.len = 1;
            return None;
        };
        let (replaced, behind) = insert(Arc::make_mut(root), key, value);
        if replaced.is_none() {
            self.len += 1;
        }
        if let Some(behind) = behind {
            let low = behind.0.clone();
            let before = core::mem::replace(root, Arc::new(Node::Branch(Vec::new())));
            // Any key will do for the first child; this one is at hand.
            *root = Arc::new(Node::Branch(alloc::vec![(low, before), behind]));
        }
        replaced
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let root = Arc::make_mut(self.root.as_mut()?);
        let removed = remove(root, key)?;
        self.len -= 1;
        if self.len == 0 {
            self.root = None;
        }
        while let Some(only) = self.root.as_deref().and_then(only_child) {
            self.root = Some(only);
        }
        Some(removed)
    }

    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        let key = self.first()?.0.clone();
        let value = self.remove(&key)?;
        Some((key, value))
    }
}

impl<V: Clone> Tree<u64, V> {
    /// Puts a value behind all others and returns its key, which is not 0. The key of a value that
    /// was removed may be given out again.
    pub(crate) fn push(&mut self, value: V) -> u64 {
        let key = self.last_key().map_or(1, |last| last + 1);
        self.insert(key, value);
        key
    }

    fn last_key(&self) -> Option<u64> {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Branch(children) => node = &*children.last()?.1,
                Node::Leaf(entries) => return entries.last().map(|(key, _)| *key),
            }
        }
    }
}

fn only_child<K, V>(node: &Node<K, V>) -> Option<Arc<Node<K, V>>> {
    match node {
        Node::Branch(children) if children.len() == 1 => Some(children[0].1.clone()),
        Node::Branch(_) | Node::Leaf(_) => None,
    }
}

/// The child in which `key` stands if it is there.
fn child<K: Borrow<Q>, V, Q: Ord + ?Sized>(children: &Children<K, V>, key: &Q) -> usize {
    // The first one's key does not count.
    match find(&children[1..], key) {
        Ok(at) => at + 1,
        Err(at) => at,
    }
}

/// Binary search. The one of slices does without branches, so that each comparison waits for the
/// one before; of names, which stand elsewhere in memory, the next is better fetched on suspicion.
fn find<K: Borrow<Q>, V, Q: Ord + ?Sized>(entries: &[(K, V)], key: &Q) -> Result<usize, usize> {
    let (mut low, mut high) = (0, entries.len());
    while low < high {
        let middle = low.midpoint(high);
        match entries[middle].0.borrow().cmp(key) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => return Ok(middle),
            Ordering::Greater => high = middle,
        }
    }
    Err(low)
}

fn insert<K: Ord + Clone, V: Clone>(node: &mut Node<K, V>, key: K, value: V) -> Inserted<K, V> {
    match node {
        Node::Leaf(entries) => match find(entries, &key) {
            Ok(at) => (Some(core::mem::replace(&mut entries[at].1, value)), None),
            Err(at) => {
                let behind = insert_at(entries, at, (key, value), LEAF_MAX);
                let behind = behind.map(|part| (part[0].0.clone(), Arc::new(Node::Leaf(part))));
                (None, behind)
            }
        },
        Node::Branch(children) => {
            let at = child(children, &key);
            let (replaced, behind) = insert(Arc::make_mut(&mut children[at].1), key, value);
            let behind = behind.and_then(|new| {
                let part = insert_at(children, at + 1, new, BRANCH_MAX)?;
                Some((part[0].0.clone(), Arc::new(Node::Branch(part))))
            });
            (replaced, behind)
        }
    }
}

/// Inserts into a node; if it is full, its end is cut off and returned.
fn insert_at<T>(node: &mut Vec<T>, at: usize, new: T, max: usize) -> Option<Vec<T>> {
    if node.len() < max {
        if node.len() == node.capacity() {
            node.reserve_exact(ROOM.min(max - node.len()));
        }
        node.insert(at, new);
        return None;
    }
    if at == max {
        // Keys often come in order; then whole nodes stay behind.
        return Some(alloc::vec![new]);
    }
    let mut behind = node.split_off(max / 2);
    node.shrink_to(max / 2 + ROOM);
    let (into, at) = match at.checked_sub(max / 2) {
        Some(at) => (&mut behind, at),
        None => (node, at),
    };
    if into.len() == into.capacity() {
        into.reserve_exact(ROOM);
    }
    into.insert(at, new);
    Some(behind)
}

/// Leaves the node empty only if it had nothing else.
fn remove<K, V, Q>(node: &mut Node<K, V>, key: &Q) -> Option<V>
where
    K: Ord + Clone + Borrow<Q>,
    V: Clone,
    Q: Ord + ?Sized,
{
    match node {
        Node::Leaf(entries) => {
            let at = find(entries, key).ok()?;
            let (_, value) = entries.remove(at);
            give_back(entries);
            Some(value)
        }
        Node::Branch(children) => {
            let at = child(children, key);
            let below = Arc::make_mut(&mut children[at].1);
            let removed = remove(below, key)?;
            let empty = match below {
                Node::Leaf(entries) => entries.is_empty(),
                Node::Branch(children) => children.is_empty(),
            };
            if empty {
                children.remove(at);
                give_back(children);
            }
            Some(removed)
        }
    }
}

/// Gives memory back that the node is not about to need again.
fn give_back<T>(node: &mut Vec<T>) {
    if node.capacity() - node.len() > 2 * ROOM {
        node.shrink_to(node.len() + ROOM);
    }
}

/// Entries in rising order of their keys.
#[derive(Debug)]
pub(crate) struct Iter<'a, K, V> {
    leaf: slice::Iter<'a, (K, V)>,
    /// What is still to be entered, the innermost branch last.
    branches: Vec<slice::Iter<'a, Child<K, V>>>,
}

impl<K, V> Default for Iter<'_, K, V> {
    fn default() -> Self {
        Self {
            leaf: [].iter(),
            branches: Vec::new(),
        }
    }
}

impl<'a, K, V> Iter<'a, K, V> {
    fn enter(&mut self, node: &'a Node<K, V>) {
        match node {
            Node::Leaf(entries) => self.leaf = entries.iter(),
            Node::Branch(children) => self.branches.push(children.iter()),
        }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.leaf.next() {
                return Some((key, value));
            }
            match self.branches.last_mut()?.next() {
                Some((_, child)) => self.enter(child),
                None => drop(self.branches.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use alloc::collections::BTreeMap;

    type Model = BTreeMap<u32, u32>;

    fn same(tree: &Tree<u32, u32>, model: &Model) {
        assert_eq!(tree.len(), model.len());
        assert!(tree.iter().eq(model.iter()), "{tree:?}\nis not {model:?}");
    }

    /// Numbers that look random, and are the same every time.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: u32) -> u32 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            ((self.0 >> 33) % u64::from(end)) as u32
        }
    }

    #[test]
    fn it_does_what_an_ordered_map_does() {
        let mut dice = Dice(7);
        let (mut tree, mut model) = (Tree::default(), Model::new());
        for round in 0..60_000 {
            // It grows, shrinks to nothing, and grows again.
            let grows = (round / 15_000) % 2 == 0;
            let key = dice.below(8_000);
            if dice.below(10) < if grows { 8 } else { 1 } {
                assert_eq!(tree.insert(key, round), model.insert(key, round));
            } else if !grows && dice.below(2) == 0 {
                assert_eq!(tree.pop_first(), model.pop_first());
            } else {
                assert_eq!(tree.remove(&key), model.remove(&key));
            }
            let probe = dice.below(8_000);
            assert_eq!(tree.get(&probe), model.get(&probe));
            assert_eq!(tree.get_mut(&probe), model.get_mut(&probe));
            assert_eq!(tree.first(), model.first_key_value());
            if round % 500 == 0 {
                same(&tree, &model);
                for from in [Bound::Included(&probe), Bound::Excluded(&probe)] {
                    let expected = model.range((from, Bound::Unbounded));
                    assert!(tree.iter_from(from).eq(expected), "from {from:?}");
                }
            }
        }
    }

    #[test]
    fn a_clone_keeps_what_it_was_cloned_from() {
        let mut dice = Dice(9);
        let mut tree: Tree<u32, u32> = Tree::default();
        let mut kept = Vec::new();
        for round in 0..5_000 {
            let key = dice.below(1_000);
            match dice.below(4) {
                0 => drop(tree.remove(&key)),
                1 => {
                    if let Some(value) = tree.get_mut(&key) {
                        *value += 1;
                    }
                }
                _ => drop(tree.insert(key, round)),
            }
            if round % 250 == 0 {
                let model: Model = tree.iter().map(|(key, value)| (*key, *value)).collect();
                kept.push((tree.clone(), model));
            }
        }
        for (clone, model) in &kept {
            same(clone, model);
        }
    }

    #[test]
    fn keys_that_come_in_order_leave_full_leaves() {
        let mut tree = Tree::default();
        for key in 0..1_000_u32 {
            tree.insert(key, ());
        }
        let leaf = tree.leaf_mut(&500).expect("it is not empty");
        assert_eq!(leaf.len(), LEAF_MAX);
        assert!(leaf.iter().any(|(key, ())| *key == 500));
    }
}
