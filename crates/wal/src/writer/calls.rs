//! Calls into the writer: carried out at once, or held back in their order while the file system
//! has no room for the next segment.

use super::{MaxByIndex, NO_ID, Writer};
use crate::call::Call;
use crate::format::{Kind, Record};
use crate::index::IndexOp;
use crate::{Done, EntryId, LogEntry, MAX_MARK_BYTES, WalError};

impl Writer {
    /// Takes a call, behind those that wait for room.
    pub(crate) fn take(&mut self, call: Call) {
        if self.stalled.is_empty() {
            self.carry_out(call);
        } else {
            self.stalled.push_back(call);
        }
    }

    /// Returns true if calls wait for room on the file system.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Carries out the calls that wait for room, as far as there is some.
    pub(crate) fn resume(&mut self) {
        while let Some(call) = self.stalled.pop_front() {
            let waiting = self.stalled.len();
            self.carry_out(call);
            if self.stalled.len() > waiting {
                return;
            }
        }
    }

    /// Carries out a call, or puts what is left of it before those that wait for room.
    fn carry_out(&mut self, call: Call) {
        let left = match call {
            Call::Append(entries, done) => match self.check(&entries) {
                Ok(()) => self.try_append(entries, done),
                Err(error) => {
                    done(Err(error));
                    None
                }
            },
            Call::Vote(vote, done) => self.try_vote(vote, done),
            Call::Truncate(last_kept, done) => self.try_truncate(last_kept, done),
            Call::Purge(upto) => self.try_purge(upto),
            // It is for the code that runs the writer.
            Call::Close => None,
        };
        if let Some(left) = left {
            self.stalled.push_front(left);
        }
    }

    fn try_truncate(&mut self, last_kept: Option<EntryId>, done: Option<Done>) -> Option<Call> {
        let kept = last_kept.max_by_index(self.marks.purged);
        if self.marks.last.map(|id| id.index) <= kept.map(|id| id.index) {
            // Nothing is there to be cut; what came before it may still wait to be written.
            match (done, self.alive()) {
                (Some(done), Err(error)) => done(Err(error)),
                (Some(done), Ok(())) if self.batch.is_empty() => done(Ok(())),
                (done, _) => self.dones.extend(done),
            }
            return None;
        }
        let record = match kept {
            Some(id) => Record {
                kind: Kind::TruncateAfter,
                id,
                payload: &[],
            },
            None => Record {
                kind: Kind::TruncateAll,
                id: NO_ID,
                payload: &[],
            },
        };
        match self.push(record) {
            Ok(_) => {
                self.marks.truncate(kept);
                let last = self.marks.last.map(|id| id.index);
                self.pending.take_if(|(index, _)| Some(*index) > last);
                self.ops
                    .push(IndexOp::TruncateFrom(kept.map_or(0, |id| id.index + 1)));
                self.dones.extend(done);
                None
            }
            Err(error) if error.may_pass() => Some(Call::Truncate(last_kept, done)),
            Err(error) => {
                if let Some(done) = done {
                    done(Err(error));
                }
                None
            }
        }
    }

    fn try_purge(&mut self, upto: EntryId) -> Option<Call> {
        if self
            .marks
            .purged
            .is_some_and(|purged| purged.index >= upto.index)
        {
            return None;
        }
        let record = Record {
            kind: Kind::Purge,
            id: upto,
            payload: &[],
        };
        match self.push(record) {
            Ok(_) => {
                self.marks.purge(upto);
                self.ops.push(IndexOp::PurgeUpto(upto.index));
                None
            }
            Err(error) if error.may_pass() => Some(Call::Purge(upto)),
            // The failure has poisoned the log, and every call that waits was notified.
            Err(_) => None,
        }
    }

    /// Refuses entries that must not be written, before any of them is.
    fn check(&self, entries: &[LogEntry]) -> Result<(), WalError> {
        let mut last = self.marks.last.map(|id| id.index);
        for entry in entries {
            let expected = last.map_or(entry.id.index, |index| index.saturating_add(1));
            if entry.id.index != expected {
                return Err(WalError::OutOfOrder {
                    offered: entry.id.index,
                    expected,
                });
            }
            let bytes = entry.payload.len() as u64;
            if bytes > self.entry_limit {
                return Err(WalError::EntryTooLarge {
                    id: entry.id,
                    bytes,
                    limit: self.entry_limit,
                });
            }
            last = Some(entry.id.index);
        }
        Ok(())
    }

    fn try_append(&mut self, entries: Vec<LogEntry>, done: Done) -> Option<Call> {
        let mut entries = entries.into_iter();
        while let Some(LogEntry { id, payload }) = entries.next() {
            let pushed = self.push(Record {
                kind: Kind::Entry,
                id,
                payload: &payload,
            });
            let loc = match pushed {
                Ok(loc) => loc,
                Err(error) if error.may_pass() => {
                    let first = LogEntry { id, payload };
                    let left = std::iter::once(first).chain(entries).collect();
                    return Some(Call::Append(left, done));
                }
                Err(error) => {
                    done(Err(error));
                    return None;
                }
            };
            self.ops.push(IndexOp::Push(id.index, loc));
            self.marks.last = Some(id);
            self.active_greatest = self.active_greatest.max(Some(id.index));
            self.entries_in_batch += 1;
        }
        match self.alive() {
            Ok(()) => self.dones.push(done),
            Err(error) => done(Err(error)),
        }
        None
    }

    fn try_vote(&mut self, vote: Vec<u8>, done: Done) -> Option<Call> {
        if vote.len() > MAX_MARK_BYTES {
            let (bytes, limit) = (vote.len() as u64, MAX_MARK_BYTES as u64);
            done(Err(WalError::VoteTooLarge { bytes, limit }));
            return None;
        }
        let record = Record {
            kind: Kind::Vote,
            id: NO_ID,
            payload: &vote,
        };
        match self.push(record) {
            Ok(_) => {
                self.marks.vote = Some(vote);
                self.dones.push(done);
            }
            Err(error) if error.may_pass() => return Some(Call::Vote(vote, done)),
            Err(error) => done(Err(error)),
        }
        None
    }
}
