//! Who lost a term, and must notice before it is granted another one.
//!
//! A client of Kubernetes' election trusts its own clock: it goes on while its renewals fail, and
//! stops when it could not renew for a deadline that is shorter than the lease's duration. A process
//! that slept through the loss of its term, for however long, starts that deadline when it wakes. If
//! its next write granted it the lease again, it would go on with the old term and a new token. So
//! that write is refused, and all others for one duration more: its loop has ended by then.

use alloc::vec::Vec;

use super::object::{Candidate, OWING_MAX, OWING_TOTAL_MAX, Owing};
use crate::name::{Identity, LeaseName};
use crate::time::{ClusterTime, Millis};
use crate::tree::Tree;

/// A candidate of a name, as it is looked for.
#[derive(Clone, Copy)]
pub(super) struct Debtor<'a> {
    pub(super) identity: &'a Identity,
    pub(super) candidate: &'a Candidate,
    /// Whether principals are compared.
    pub(super) binds: bool,
}

/// All notes.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    /// Those of each name, the oldest first; no list is empty.
    by_name: Tree<LeaseName, Vec<Owing>>,
    /// Exactly one entry per note, under the version of its loss.
    order: Tree<u64, LeaseName>,
}

impl Notes {
    /// Notes a candidate whose term ended against its will. The newest notes of a name are kept, also
    /// when its object is deleted; of all notes the newest, too.
    pub(super) fn add(&mut self, name: &LeaseName, note: Owing) {
        let mut notes = self.take(name);
        notes.retain(|known| known.identity != note.identity || known.candidate != note.candidate);
        let spare = (notes.len() + 1).saturating_sub(OWING_MAX);
        notes.drain(..spare);
        notes.push(note);
        self.put(name, notes);
        while self.order.len() > OWING_TOTAL_MAX {
            let Some((lost, name)) = self.order.first() else {
                return;
            };
            let (lost, name) = (*lost, name.clone());
            let mut notes = self.take(&name);
            notes.retain(|note| note.lost != lost);
            self.order.remove(&lost);
            self.put(&name, notes);
        }
    }

    /// What a candidate owes, if anything.
    pub(super) fn of(&self, name: &LeaseName, debtor: Debtor<'_>) -> Option<&Owing> {
        let notes = self.by_name.get(name)?;
        // The newest, if it was noted under several principals.
        notes.iter().rev().find(|note| note.is_of(debtor))
    }

    /// Lets the time run after which the candidate is granted a term again.
    pub(super) fn refused(&mut self, name: &LeaseName, debtor: Debtor<'_>, until: ClusterTime) {
        let notes = self.by_name.get_mut(name).into_iter().flatten();
        for note in notes.filter(|note| note.is_of(debtor)) {
            note.until = note.until.or(Some(until));
        }
    }

    /// Forgets what the candidate owed.
    pub(super) fn settle(&mut self, name: &LeaseName, debtor: Debtor<'_>) {
        if self.of(name, debtor).is_some() {
            let mut notes = self.take(name);
            notes.retain(|note| !note.is_of(debtor));
            self.put(name, notes);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&LeaseName, &Vec<Owing>)> {
        self.by_name.iter()
    }

    /// Puts in the notes of one name, as a snapshot has them. `versions` is the newest version.
    pub(super) fn restore(
        &mut self,
        name: LeaseName,
        notes: Vec<Owing>,
        versions: u64,
    ) -> Result<(), &'static str> {
        let rising = notes.is_sorted_by(|one, next| one.lost < next.lost);
        let given_out = notes.last().is_some_and(|note| note.lost <= versions);
        let taken = |note: &Owing| self.order.get(&note.lost).is_some();
        let fits = notes.len() <= OWING_MAX && self.by_name.get(&name).is_none();
        if !rising || !given_out || !fits || notes.iter().any(taken) {
            return Err("has notes of lost terms that are too many or out of order");
        }
        self.put(&name, notes);
        Ok(())
    }

    fn take(&mut self, name: &LeaseName) -> Vec<Owing> {
        let notes = self.by_name.remove(name).unwrap_or_default();
        for note in &notes {
            self.order.remove(&note.lost);
        }
        notes
    }

    fn put(&mut self, name: &LeaseName, notes: Vec<Owing>) {
        for note in &notes {
            self.order.insert(note.lost, name.clone());
        }
        if !notes.is_empty() {
            self.by_name.insert(name.clone(), notes);
        }
    }
}

impl Owing {
    /// A note of a process of which nothing was proven is that of any with its name: the proof may
    /// have come since.
    fn is_of(&self, debtor: Debtor<'_>) -> bool {
        let own = self.candidate.is(debtor.candidate, debtor.binds);
        self.identity == *debtor.identity && (own || self.candidate.is_unproven())
    }

    /// For how long the candidate is refused from `now` on; `None` if it may be granted a term.
    /// `duration` is that of the lease that it asks for.
    pub(super) fn remaining(&self, now: ClusterTime, duration: Millis) -> Option<Millis> {
        match self.until {
            None => Some(duration),
            Some(until) => Some(until.since(now)).filter(|remaining| remaining.0 > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    /// Whose names come first in the alphabet must not lose theirs to the crowd behind them.
    #[test]
    fn of_all_notes_the_oldest_is_forgotten_first() {
        let name = |at: u64| LeaseName::parse(&format!("k8s/shop/{}", u64::MAX - at)).unwrap();
        let mut notes = Notes::default();
        let total = OWING_TOTAL_MAX as u64;
        for lost in 0..total + 3 {
            let note = Owing {
                identity: Identity::unknown(),
                candidate: Candidate::default(),
                lost,
                until: None,
            };
            notes.add(&name(lost), note);
        }
        assert_eq!(
            notes.iter().map(|(_, notes)| notes.len()).sum::<usize>(),
            notes.order.len()
        );
        let (identity, candidate) = (Identity::unknown(), Candidate::default());
        let debtor = Debtor {
            identity: &identity,
            candidate: &candidate,
            binds: true,
        };
        assert_eq!(notes.of(&name(2), debtor), None);
        assert!(notes.of(&name(3), debtor).is_some());
        assert!(notes.of(&name(total + 2), debtor).is_some());
    }
}
