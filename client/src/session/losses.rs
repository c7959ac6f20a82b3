//! Which grants of a session were lost, and of which of them the cluster hears back.

use std::collections::{BTreeMap, BTreeSet};

/// The most tokens remembered per session and kind.
const TOKENS_MAX: usize = 4_096;

/// What one attachment to a session knows of its lost grants, by token.
///
/// It acknowledges a loss only of grants that were made at its own wish: the session may be attached
/// elsewhere too, and to acknowledge for those who still believe there would let the next holder in.
#[derive(Default)]
pub(crate) struct Losses {
    /// Listed as lost, or reported as ended by a watch. An acquire whose answer brings one of these
    /// brings nothing.
    gone: BTreeSet<u64>,
    /// Granted to this client, which does not believe in them, by its own doing.
    given_up: BTreeSet<u64>,
    /// Not believed in any more, and the cluster has not heard so.
    acknowledge: BTreeSet<u64>,
    /// Worked under by something that does not end at once, and by how many such.
    worked_under: BTreeMap<u64, usize>,
    /// Those of them that are not believed in any more.
    withheld: BTreeSet<u64>,
}

impl Losses {
    /// The cluster lists this one. Says whether this client had given it up before, so that its loss
    /// can be [acknowledged](Self::acknowledge).
    pub(crate) fn listed(&mut self, token: u64) -> bool {
        remember(&mut self.gone, token);
        self.given_up.remove(&token)
    }

    /// This one has ended, as a watch reports; the cluster need not hear that it is known here.
    pub(crate) fn ended(&mut self, token: u64) {
        remember(&mut self.gone, token);
    }

    /// Whether the cluster has listed this one, or a watch has reported its end.
    pub(crate) fn has_listed(&self, token: u64) -> bool {
        self.gone.contains(&token)
    }

    /// This client was granted this one, and does not believe in it any more, or never has.
    pub(crate) fn give_up(&mut self, token: u64) {
        remember(&mut self.given_up, token);
    }

    /// It believes in this one after all.
    pub(crate) fn take_back(&mut self, token: u64) {
        self.given_up.remove(&token);
    }

    /// The cluster is to hear that belief in this one has ended, as soon as nothing works under it.
    /// Says whether there is news for it.
    pub(crate) fn acknowledge(&mut self, token: u64) -> bool {
        if self.worked_under.contains_key(&token) {
            self.withheld.insert(token);
            return false;
        }
        self.acknowledge.insert(token)
    }

    /// Work under this one begins whose end takes time. A loss that was noticed a moment ago, and of
    /// which the cluster has not heard, waits for it too.
    pub(crate) fn work_begins(&mut self, token: u64) {
        *self.worked_under.entry(token).or_default() += 1;
        if self.acknowledge.remove(&token) {
            self.withheld.insert(token);
        }
    }

    /// Such work has ended. Says whether there is news for the cluster.
    pub(crate) fn work_ended(&mut self, token: u64) -> bool {
        if let Some(left) = self.worked_under.get_mut(&token) {
            *left -= 1;
            if *left > 0 {
                return false;
            }
            self.worked_under.remove(&token);
        }
        self.withheld.remove(&token) && self.acknowledge(token)
    }

    /// What the cluster is to hear with the next keep-alive.
    pub(crate) fn to_acknowledge(&self) -> impl Iterator<Item = u64> {
        self.acknowledge.iter().copied()
    }

    /// The cluster has heard it.
    pub(crate) fn acknowledged(&mut self, tokens: &[u64]) {
        for token in tokens {
            self.acknowledge.remove(token);
        }
    }
}

/// Forgets the oldest for it if there are too many.
fn remember(tokens: &mut BTreeSet<u64>, token: u64) {
    tokens.insert(token);
    if tokens.len() > TOKENS_MAX {
        tokens.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_has_a_limit_and_the_oldest_goes_first() {
        let mut losses = Losses::default();
        let last = 2 * TOKENS_MAX as u64;
        for token in 1..=last {
            losses.give_up(token);
        }
        assert!(!losses.listed(1));
        assert!(losses.listed(last));
        assert!(!losses.listed(last), "once");
        assert!(losses.has_listed(1) && losses.has_listed(last));
    }
}
