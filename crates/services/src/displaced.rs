//! Which of the things that a node keeps for its callers goes when there are too many.

use ringfence_core::Principal;

/// The place of the one that goes, of things that were kept for these principals, the oldest first: the
/// oldest of the principal that has most of them. So no principal takes what is kept for others by
/// asking for more.
pub(crate) fn displaced<'a>(
    principals: impl Iterator<Item = Option<&'a Principal>> + Clone,
) -> Option<usize> {
    let count_of = |principal| principals.clone().filter(|it| *it == principal).count();
    let most = principals.clone().map(count_of).max()?;
    principals.clone().position(|it| count_of(it) == most)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_principal_that_asks_for_many_loses_its_own_and_no_others_one() {
        let of = |name: &str| Principal::parse(name).unwrap();
        let mut kept = vec![of("token:boss")];
        for _ in 0..20 {
            kept.push(of("token:small"));
            if kept.len() > 8 {
                let gone = displaced(kept.iter().map(Some)).unwrap();
                assert_eq!(kept.remove(gone), of("token:small"));
            }
        }
        assert_eq!((kept.len(), &kept[0]), (8, &of("token:boss")));
        // Of equals the oldest goes, and callers without a principal are one.
        let equals = [of("token:a"), of("token:b")];
        assert_eq!(displaced(equals.iter().map(Some)), Some(0));
        assert_eq!(
            displaced([Some(&equals[0]), None, None].into_iter()),
            Some(1)
        );
        assert_eq!(displaced([].into_iter()), None);
    }
}
