//! Everything but the entries, and how it is written at the start of a segment.

use crate::EntryId;
use crate::bytes::{u32_at, u64_at};

/// Everything but the entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) vote: Option<Vec<u8>>,
    /// The index of the mark, and the mark.
    pub(crate) committed: Option<(u64, Vec<u8>)>,
    pub(crate) purged: Option<EntryId>,
    pub(crate) last: Option<EntryId>,
}

impl Marks {
    /// Every entry after `last_kept` is gone, except that what was purged stays counted.
    pub(crate) fn truncate(&mut self, last_kept: Option<EntryId>) {
        self.last = last_kept.or(self.purged);
        // A mark above the log would be believed by the next start.
        let last = self.last.map(|id| id.index);
        self.committed.take_if(|(index, _)| Some(*index) > last);
    }

    /// Every entry up to `upto` is gone.
    pub(crate) fn purge(&mut self, upto: EntryId) {
        self.purged = Some(upto);
        if self.last.is_none_or(|last| last.index < upto.index) {
            self.last = Some(upto);
        }
    }

    /// Encodes a checkpoint's payload: four optional fields, each after a byte that is 1 or 0.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for id in [self.purged, self.last] {
            out.push(u8::from(id.is_some()));
            let id = id.unwrap_or(EntryId { term: 0, index: 0 });
            out.extend_from_slice(&id.term.to_le_bytes());
            out.extend_from_slice(&id.index.to_le_bytes());
        }
        let committed = self.committed.as_ref();
        out.extend_from_slice(&committed.map_or(0, |(index, _)| *index).to_le_bytes());
        for bytes in [self.vote.as_ref(), committed.map(|(_, mark)| mark)] {
            out.push(u8::from(bytes.is_some()));
            let bytes = bytes.map_or(&[][..], Vec::as_slice);
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        out
    }

    /// Decodes a checkpoint's payload; `None` if it is not one.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut take = |count: usize| -> Option<&[u8]> {
            let (head, rest) = bytes.split_at_checked(count)?;
            bytes = rest;
            Some(head)
        };
        let mut ids = [None; 2];
        for id in &mut ids {
            let field = take(17)?;
            *id = (field[0] == 1).then(|| EntryId {
                term: u64_at(field, 1),
                index: u64_at(field, 9),
            });
        }
        let index = u64_at(take(8)?, 0);
        let mut blobs = [None, None];
        for blob in &mut blobs {
            let field = take(5)?;
            let content = take(u32_at(field, 1) as usize)?.to_vec();
            *blob = (field[0] == 1).then_some(content);
        }
        let [vote, committed] = blobs;
        let [purged, last] = ids;
        Some(Self {
            vote,
            committed: committed.map(|mark| (index, mark)),
            purged,
            last,
        })
    }
}
