//! Who lost a term, and must notice before it is granted another one.
//!
//! A client of Kubernetes' election trusts its own clock: it goes on while its renewals fail, and
//! stops when it could not renew for a deadline that is shorter than the lease's duration. A process
//! that slept through the loss of its term, for however long, starts that deadline when it wakes. If
//! its next write granted it the lease again, it would go on with the old term and a new token. So
//! that write is refused, and all others for one duration more: its loop has ended by then.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use ringfence_planted::{Bug, planted};

use super::object::{Candidate, OWING_MAX, OWING_TOTAL_MAX, Owing};
use crate::access::principal::Principal;
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
    names: Tree<u64, LeaseName>,
    /// The versions of the losses of each principal that has notes, and of those without one.
    of_principals: Tree<Option<Principal>, Tree<u64, ()>>,
    /// Exactly one entry per principal that has notes: the one with the most is first, and among equals
    /// the one with the oldest.
    shares: Tree<(Reverse<usize>, u64), Option<Principal>>,
}

impl Notes {
    /// Notes a candidate whose term ended against its will; it is kept also when the object is deleted.
    /// One too many, of a name or of all, displaces the oldest of the principal that has the most of
    /// them: who loses terms under ever new names displaces its own notes, and none of another.
    /// Unless they are `shared` out, as below the level, the oldest goes, of any principal.
    pub(super) fn add(&mut self, name: &LeaseName, note: Owing, shared: bool) {
        let same = |known: &Owing| {
            (&known.identity, &known.candidate) == (&note.identity, &note.candidate)
        };
        self.remove_where(name, same);
        self.push(name, note);
        let notes = self.by_name.get(name).map(Vec::as_slice);
        if let Some(notes) = notes.filter(|notes| notes.len() > OWING_MAX) {
            let at = if shared { oldest_of_most(notes) } else { 0 };
            let lost = notes.get(at).map(|note| note.lost);
            self.remove_where(name, |note| Some(note.lost) == lost);
        }
        while self.names.len() > OWING_TOTAL_MAX {
            let of_most = self.shares.first().map(|((_, lost), _)| *lost);
            let oldest = self.names.first().map(|(lost, _)| *lost);
            let lost = if shared { of_most } else { oldest };
            let Some((lost, name)) =
                lost.and_then(|lost| Some((lost, self.names.get(&lost)?.clone())))
            else {
                return;
            };
            self.remove_where(&name, |note| note.lost == lost);
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
        self.remove_where(name, |note| note.is_of(debtor));
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
        let taken = |note: &Owing| self.names.get(&note.lost).is_some();
        let fits = notes.len() <= OWING_MAX && self.by_name.get(&name).is_none();
        if !rising || !given_out || !fits || notes.iter().any(taken) {
            return Err("has notes of lost terms that are too many or out of order");
        }
        for note in notes {
            self.push(&name, note);
        }
        Ok(())
    }

    fn push(&mut self, name: &LeaseName, note: Owing) {
        self.names.insert(note.lost, name.clone());
        self.change_share(&note.candidate.principal, |own| {
            own.insert(note.lost, ());
        });
        match self.by_name.get_mut(name) {
            Some(notes) => notes.push(note),
            None => drop(self.by_name.insert(name.clone(), Vec::from([note]))),
        }
    }

    fn remove_where(&mut self, name: &LeaseName, goes: impl Fn(&Owing) -> bool) {
        let Some(notes) = self.by_name.get_mut(name) else {
            return;
        };
        let going: Vec<Owing> = notes.extract_if(.., |note| goes(note)).collect();
        if notes.is_empty() {
            self.by_name.remove(name);
        }
        for note in going {
            self.names.remove(&note.lost);
            self.change_share(&note.candidate.principal, |own| {
                own.remove(&note.lost);
            });
        }
    }

    fn change_share(&mut self, of: &Option<Principal>, change: impl FnOnce(&mut Tree<u64, ()>)) {
        let mut own = self.of_principals.remove(of).unwrap_or_default();
        if let Some(share) = share(&own) {
            self.shares.remove(&share);
        }
        change(&mut own);
        if let Some(share) = share(&own) {
            self.shares.insert(share, of.clone());
            self.of_principals.insert(of.clone(), own);
        }
    }
}

/// How many notes these are, and the oldest.
fn share(notes: &Tree<u64, ()>) -> Option<(Reverse<usize>, u64)> {
    let (oldest, _) = notes.first()?;
    Some((Reverse(notes.len()), *oldest))
}

/// Where the oldest of the notes stands whose principal has the most of these, of a name at most.
fn oldest_of_most(notes: &[Owing]) -> usize {
    let of = |note: &Owing| note.candidate.principal.clone();
    let mut counts: BTreeMap<Option<Principal>, usize> = BTreeMap::new();
    for note in notes {
        *counts.entry(of(note)).or_default() += 1;
    }
    let most = counts.values().max().copied();
    if planted(Bug::NotesOfOthersDisplaced) {
        return 0;
    }
    let found = notes
        .iter()
        .position(|note| counts.get(&of(note)).copied() == most);
    found.unwrap_or_default()
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
            notes.add(&name(lost), note, lost % 2 == 0);
        }
        assert_eq!(
            notes.iter().map(|(_, notes)| notes.len()).sum::<usize>(),
            notes.names.len()
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
