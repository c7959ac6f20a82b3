//! Records back into the state they describe.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::format::{Kind, Record};
use crate::index::Loc;
use crate::marks::Marks;
use crate::{EntryId, LogEntry};

/// The state that the records read so far describe.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) marks: Marks,
    /// The live entries, ascending and without holes, each with its place.
    pub(crate) places: VecDeque<(EntryId, Loc)>,
    /// The newest of them with their payloads, as far as these have `keep_bytes`.
    pub(crate) newest: VecDeque<LogEntry>,
    newest_bytes: u64,
    pub(crate) keep_bytes: u64,
    /// Entries up to here are in segments that no longer exist, so a purge must cover them.
    floor: Option<u64>,
    /// False until the checkpoint that opens the oldest segment was read.
    begun: bool,
}

impl Replay {
    /// Applies one record that stands at `loc`.
    ///
    /// # Errors
    /// Why the record cannot follow the ones before it, in words.
    pub(crate) fn apply(&mut self, record: Record<'_>, loc: Loc) -> Result<(), String> {
        if !self.begun && record.kind != Kind::Checkpoint {
            return Err("the oldest segment does not begin with a checkpoint".to_owned());
        }
        match record.kind {
            Kind::Checkpoint => self.checkpoint(record.payload)?,
            Kind::Entry => self.entry(record, loc)?,
            Kind::Vote => self.marks.vote = Some(record.payload.to_vec()),
            Kind::Committed => {
                self.marks.committed = Some((record.id.index, record.payload.to_vec()));
            }
            Kind::TruncateAfter => self.truncate(Some(record.id)),
            Kind::TruncateAll => self.truncate(None),
            Kind::Purge => self.purge(record.id),
        }
        Ok(())
    }

    /// Checks that nothing live is missing, once every record was read.
    ///
    /// # Errors
    /// The entries that are missing, in words.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        let purged = self.marks.purged.map(|id| id.index);
        if self.floor > purged {
            let first = purged.map_or(0, |index| index + 1);
            return Err(format!(
                "entries {first} to {} are in older segments, which are missing",
                self.floor.unwrap_or(0)
            ));
        }
        Ok(())
    }

    fn checkpoint(&mut self, payload: &[u8]) -> Result<(), String> {
        let Some(marks) = Marks::decode(payload) else {
            return Err("a checkpoint has the wrong length".to_owned());
        };
        if !self.begun {
            self.begun = true;
            self.floor = marks.last.map(|id| id.index);
            self.marks = marks;
        } else if marks != self.marks {
            return Err("a checkpoint disagrees with the records before it".to_owned());
        }
        Ok(())
    }

    fn entry(&mut self, record: Record<'_>, loc: Loc) -> Result<(), String> {
        let offered = record.id.index;
        if let Some(last) = self.marks.last
            && offered != last.index.wrapping_add(1)
        {
            return Err(format!("entry {offered} follows entry {}", last.index));
        }
        self.marks.last = Some(record.id);
        self.places.push_back((record.id, loc));
        self.newest.push_back(LogEntry {
            id: record.id,
            payload: Bytes::copy_from_slice(record.payload),
        });
        self.newest_bytes += record.payload.len() as u64;
        while self.newest_bytes > self.keep_bytes {
            let Some(oldest) = self.newest.pop_front() else {
                break;
            };
            self.newest_bytes -= oldest.payload.len() as u64;
        }
        Ok(())
    }

    fn truncate(&mut self, last_kept: Option<EntryId>) {
        let kept = last_kept.map(|id| id.index);
        let cut = |id: EntryId| Some(id.index) > kept;
        while self.places.back().is_some_and(|(id, _)| cut(*id)) {
            self.places.pop_back();
        }
        while let Some(newest) = self.newest.pop_back_if(|entry| cut(entry.id)) {
            self.newest_bytes -= newest.payload.len() as u64;
        }
        self.floor = self.floor.min(kept);
        self.marks.truncate(last_kept);
    }

    fn purge(&mut self, upto: EntryId) {
        let gone = |id: EntryId| id.index <= upto.index;
        while self.places.front().is_some_and(|(id, _)| gone(*id)) {
            self.places.pop_front();
        }
        while let Some(oldest) = self.newest.pop_front_if(|entry| gone(entry.id)) {
            self.newest_bytes -= oldest.payload.len() as u64;
        }
        self.marks.purge(upto);
    }
}
