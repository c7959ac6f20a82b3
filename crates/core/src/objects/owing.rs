//! Who lost a term, and must notice before it is granted another one.
//!
//! A client of Kubernetes' election trusts its own clock: it goes on while its renewals fail, and
//! stops when it could not renew for a deadline that is shorter than the lease's duration. A process
//! that slept through the loss of its term, for however long, starts that deadline when it wakes. If
//! its next write granted it the lease again, it would go on with the old term and a new token. So
//! that write is refused, and all others for one duration more: its loop has ended by then.

use alloc::vec::Vec;

use super::object::{Candidate, OBJECTS_MAX, OWING_MAX, Owing};
use super::table::Objects;
use crate::name::{Identity, LeaseName};
use crate::time::{ClusterTime, Millis};

impl Objects {
    /// Notes a candidate whose term ended against its will. The newest notes of a name are kept, also
    /// when its object is deleted.
    pub(super) fn owes(&mut self, name: &LeaseName, identity: Identity, candidate: Candidate) {
        self.settle(name, &identity, &candidate);
        let mut notes = self.owing.remove(name).unwrap_or_default();
        let spare = (notes.len() + 1).saturating_sub(OWING_MAX);
        notes.drain(..spare);
        notes.push(Owing {
            identity,
            candidate,
            until: None,
        });
        while self.owing.len() as u64 >= OBJECTS_MAX {
            self.owing.pop_first();
        }
        self.owing.insert(name.clone(), notes);
    }

    /// What a candidate owes, if anything.
    pub(super) fn owing_of(
        &self,
        name: &LeaseName,
        identity: &Identity,
        candidate: &Candidate,
    ) -> Option<&Owing> {
        let notes = self.owing.get(name)?;
        notes.iter().find(|note| note.is_of(identity, candidate))
    }

    /// Lets the time run after which the candidate is granted a term again.
    pub(super) fn note_refusal(
        &mut self,
        name: &LeaseName,
        identity: &Identity,
        candidate: &Candidate,
        until: ClusterTime,
    ) {
        let notes = self.owing.get_mut(name).into_iter().flatten();
        for note in notes.filter(|note| note.is_of(identity, candidate)) {
            note.until = note.until.or(Some(until));
        }
    }

    /// Forgets what the candidate owed.
    pub(super) fn settle(&mut self, name: &LeaseName, identity: &Identity, candidate: &Candidate) {
        let Some(notes) = self.owing.get(name) else {
            return;
        };
        let kept = notes.iter().filter(|note| !note.is_of(identity, candidate));
        let kept: Vec<Owing> = kept.cloned().collect();
        match kept.is_empty() {
            true => drop(self.owing.remove(name)),
            false => drop(self.owing.insert(name.clone(), kept)),
        }
    }
}

impl Owing {
    fn is_of(&self, identity: &Identity, candidate: &Candidate) -> bool {
        self.identity == *identity && self.candidate == *candidate
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
