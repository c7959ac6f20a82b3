//! Who lost a term against its will: its next try is refused, and so are all others for one duration
//! more, since a process that slept may still act in its old term.

use std::collections::BTreeMap;

use ringfence_core::{
    Candidate, ClusterTime, Identity, LeaseName, Millis, Mode, Principal, Rejection,
};

use super::super::Model;
use super::LEVEL_RESTORE;

/// The most candidates of one name, and of all names, that owe the end of their term.
const NOTES_MAX: (usize, usize) = (64, 100_000);

/// A loss that its candidate may not know of.
#[derive(Clone, Debug)]
pub(super) struct Note {
    name: LeaseName,
    identity: Identity,
    candidate: Candidate,
    /// When it may be granted a term again; set by its first try.
    until: Option<ClusterTime>,
}

/// Whether both are one process, as far as rights bind.
pub(super) fn is_one(one: &Candidate, other: &Candidate, binds: bool) -> bool {
    one.pod == other.pod && (!binds || one.principal == other.principal)
}

/// Whether nothing was proven of it.
pub(super) fn is_unproven(candidate: &Candidate) -> bool {
    *candidate == Candidate::default()
}

impl Model {
    pub(super) fn binds(&self) -> bool {
        self.rights.mode == Mode::Enforced
    }

    pub(super) fn note_loss(
        &mut self,
        name: &LeaseName,
        identity: &Identity,
        candidate: Candidate,
    ) {
        let fair = self.level >= LEVEL_RESTORE;
        let notes = &mut self.objects.notes;
        notes.retain(|note| {
            note.name != *name || note.identity != *identity || note.candidate != candidate
        });
        notes.push(Note {
            name: name.clone(),
            identity: identity.clone(),
            candidate,
            until: None,
        });
        let (of_name, all) = NOTES_MAX;
        if notes.iter().filter(|note| note.name == *name).count() > of_name {
            let of_name = |note: &Note| note.name == *name;
            let oldest = notes.iter().position(of_name).expect("there are many");
            let goes = if fair {
                oldest_of_most(notes, of_name)
            } else {
                oldest
            };
            notes.remove(goes);
        }
        if notes.len() > all {
            let goes = if fair {
                oldest_of_most(notes, |_| true)
            } else {
                0
            };
            notes.remove(goes);
        }
    }

    /// Refuses a candidate that owes the end of its last term.
    pub(super) fn check_owing(
        &mut self,
        name: &LeaseName,
        identity: &Identity,
        candidate: &Candidate,
        duration: Millis,
    ) -> Result<(), Rejection> {
        let (now, binds) = (self.time, self.binds());
        let own = |note: &Note| is_of(note, name, identity, candidate, binds);
        let newest = self.objects.notes.iter().rev().find(|note| own(note));
        let remaining = match newest.map(|note| note.until) {
            None => return Ok(()),
            Some(None) => duration,
            Some(Some(until)) => until.since(now),
        };
        if remaining.0 == 0 && newest.is_some_and(|note| note.until.is_some()) {
            return Ok(());
        }
        for note in self.objects.notes.iter_mut().filter(|note| own(note)) {
            note.until.get_or_insert(now.after(duration));
        }
        Err(Rejection::Owing { remaining })
    }

    /// The candidate was granted a term: it owes nothing.
    pub(super) fn settle_owing(
        &mut self,
        name: &LeaseName,
        identity: &Identity,
        candidate: &Candidate,
    ) {
        let binds = self.binds();
        let notes = &mut self.objects.notes;
        notes.retain(|note| !is_of(note, name, identity, candidate, binds));
    }
}

/// Of the notes that are `meant`, the first one of those principals that have the most of them.
fn oldest_of_most(notes: &[Note], meant: impl Fn(&Note) -> bool) -> usize {
    let mut counts: BTreeMap<Option<&Principal>, usize> = BTreeMap::new();
    for note in notes.iter().filter(|note| meant(note)) {
        *counts.entry(note.candidate.principal.as_ref()).or_default() += 1;
    }
    let most = counts.values().max().copied();
    let goes = |note: &Note| {
        meant(note) && counts.get(&note.candidate.principal.as_ref()).copied() == most
    };
    notes.iter().position(goes).expect("there are too many")
}

/// Whether a note may be this candidate's: one of which nothing was proven may be anyone of its name.
fn is_of(
    note: &Note,
    name: &LeaseName,
    identity: &Identity,
    candidate: &Candidate,
    binds: bool,
) -> bool {
    let same = is_one(&note.candidate, candidate, binds) || is_unproven(&note.candidate);
    note.name == *name && note.identity == *identity && same
}
