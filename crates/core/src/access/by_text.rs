//! Values by text: by principal, or by lease name.
//!
//! Principals begin alike (`sa:prod:shop/…`), and so do names: a search that compares texts reads most
//! of several of them, from all over the memory. One that compares digests reads numbers that stand
//! side by side, and one text at its end.

use core::borrow::Borrow;

use crate::few::Few;
use crate::tree::Tree;

/// A digest that is made byte by byte (FNV-1a), so that those of the beginnings of a text are had on
/// the way to that of the whole. It is the same on every replica. Texts that were chosen to have the
/// same digest are compared as texts, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Digest(u64);

impl Digest {
    /// That of the empty text.
    pub(crate) const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// That of the text with this byte behind it.
    pub(crate) const fn then(self, byte: u8) -> Self {
        Self((self.0 ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3))
    }

    fn of(text: &str) -> Self {
        text.bytes().fold(Self::EMPTY, Self::then)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ByText<K, V> {
    by_digest: Tree<Digest, Few<(K, V)>>,
}

impl<K, V> Default for ByText<K, V> {
    fn default() -> Self {
        let by_digest = Tree::default();
        Self { by_digest }
    }
}

impl<K: Borrow<str>, V> ByText<K, V> {
    pub(crate) fn get(&self, text: &str) -> Option<&V> {
        self.find(Digest::of(text), text)
    }

    /// The same where the digest of the text is known.
    pub(crate) fn find(&self, digest: Digest, text: &str) -> Option<&V> {
        let alike = self.by_digest.get(&digest)?.as_slice();
        alike
            .iter()
            .find_map(|(key, value)| (key.borrow() == text).then_some(value))
    }
}

impl<K: Borrow<str> + Clone, V: Clone> ByText<K, V> {
    /// Changes the value of a text; `None` if it has none.
    pub(crate) fn change<R>(&mut self, text: &str, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let alike = self.by_digest.get_mut(&Digest::of(text))?;
        let at = place(alike, text)?;
        alike.get_mut(at).map(|(_, value)| change(value))
    }

    /// Puts the value under a text that has none.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let digest = Digest::of(key.borrow());
        match self.by_digest.get_mut(&digest) {
            Some(alike) => alike.insert(alike.len(), (key, value)),
            None => drop(self.by_digest.insert(digest, Few::One((key, value)))),
        }
    }

    pub(crate) fn remove(&mut self, text: &str) {
        let digest = Digest::of(text);
        let Some(alike) = self.by_digest.get_mut(&digest) else {
            return;
        };
        if let Some(at) = place(alike, text) {
            alike.remove(at);
        }
        if alike.len() == 0 {
            self.by_digest.remove(&digest);
        }
    }
}

fn place<K: Borrow<str>, V>(alike: &Few<(K, V)>, text: &str) -> Option<usize> {
    let mut keys = alike.as_slice().iter();
    keys.position(|(key, _)| key.borrow() == text)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::String;

    use super::*;

    #[test]
    fn digests_are_those_of_fnv_1a() {
        assert_eq!(Digest::of(""), Digest(0xcbf2_9ce4_8422_2325));
        assert_eq!(Digest::of("a"), Digest(0xaf63_dc4c_8601_ec8c));
        assert_eq!(Digest::of("foobar"), Digest(0x8594_4171_f739_67e8));
    }

    #[test]
    fn texts_with_the_same_digest_have_values_of_their_own() {
        let mut alike = Few::default();
        alike.insert(0, (String::from("token:a"), 1));
        alike.insert(1, (String::from("token:b"), 2));
        let mut by_text = ByText::default();
        // As if both had the digest of the first.
        by_text.by_digest.insert(Digest::of("token:a"), alike);
        assert_eq!(by_text.get("token:a"), Some(&1));
        assert_eq!(by_text.find(Digest::of("token:a"), "token:b"), Some(&2));
        assert_eq!(by_text.find(Digest::of("token:a"), "token:c"), None);
        by_text.remove("token:a");
        assert_eq!(by_text.get("token:a"), None);
        assert_eq!(by_text.find(Digest::of("token:a"), "token:b"), Some(&2));
    }

    #[test]
    fn it_does_what_a_map_does() {
        let (mut by_text, mut model) = (ByText::default(), BTreeMap::new());
        for number in 0..2_000_u32 {
            let text = format!("sa:prod:team/{}", number * 7_919 % 300);
            match model.remove(&text) {
                Some(value) if number % 3 == 0 => {
                    assert_eq!(by_text.get(&text), Some(&value));
                    by_text.remove(&text);
                }
                Some(value) => {
                    assert_eq!(by_text.change(&text, |value| *value += 1), Some(()));
                    model.insert(text.clone(), value + 1);
                }
                None => {
                    assert_eq!(by_text.change(&text, |value| *value += 1), None);
                    by_text.insert(text.clone(), number);
                    model.insert(text.clone(), number);
                }
            }
            assert_eq!(by_text.get(&text), model.get(&text));
        }
        assert_eq!(by_text.by_digest.len(), model.len());
    }
}
