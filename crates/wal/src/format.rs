//! Batches and records as bytes.
//!
//! A batch begins at a multiple of the segment's block and fills whole blocks, so that writing one
//! never touches a block that holds acknowledged records: the kernel writes whole pages back, and a
//! power failure may leave garbage anywhere in one. Numbers are little endian.
//!
//! ```text
//! batch   length u32 │ crc u32 │ number u64 │ offset u64 │ body crc u32 │ records u32 │ body
//! record  length u32 │ crc u32 │ kind u8 │ term u64 │ index u64 │ payload
//! ```
//!
//! A batch's length counts its body, with padding; a record's length counts what follows the crc.
//! Both are never 0, so that a 0 ends a batch (padding) and a segment (preallocated zeros). Every
//! crc starts from the segment's seed, so that bytes of another segment never pass.

use crate::bytes::{crc, u32_at, u64_at};
use crate::segment::BLOCK;
use crate::{EntryId, MAX_MARK_BYTES};

/// Bytes before the body of a batch.
pub(crate) const BATCH_HEAD: usize = 32;
/// Bytes before the payload of a record.
pub(crate) const RECORD_HEAD: usize = 25;
/// The part of a record that its length counts, without the payload.
const COUNTED_HEAD: usize = 17;
/// No record of marks is longer: a checkpoint with both marks and all flags.
pub(crate) const MARKS_RECORD_MAX: usize = RECORD_HEAD + 2 * MAX_MARK_BYTES + 64;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An entry: its term, its index, and the payload.
    Entry = 1,
    /// A vote; the payload.
    Vote = 2,
    /// A committed mark: its index, and the payload.
    Committed = 3,
    /// Every entry after the id is gone.
    TruncateAfter = 4,
    /// Every entry that is not purged is gone.
    TruncateAll = 5,
    /// Every entry up to the id is gone, and will never be asked for.
    Purge = 6,
    /// Everything but the entries, as it stands here: opens each segment, and each opening.
    Checkpoint = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Entry,
            2 => Self::Vote,
            3 => Self::Committed,
            4 => Self::TruncateAfter,
            5 => Self::TruncateAll,
            6 => Self::Purge,
            7 => Self::Checkpoint,
            _ => return None,
        })
    }
}

/// One record, borrowed from a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) id: EntryId,
    pub(crate) payload: &'a [u8],
}

/// A batch being gathered.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    records: u32,
    /// The block of the segment that it goes to, in bytes.
    block: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            records: 0,
            block: BLOCK,
        }
    }
}

impl Batch {
    /// Returns true if nothing was pushed.
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Says what blocks the segment has that the batch goes to.
    pub(crate) fn set_block(&mut self, bytes: u64) {
        self.block = bytes;
    }

    /// The bytes that the batch fills on disk with `more` bytes of records.
    pub(crate) fn disk_len(&self, more: usize) -> u64 {
        let len = self.bytes.len().max(BATCH_HEAD) + more;
        (len as u64).next_multiple_of(self.block)
    }

    /// Adds a record and returns its place in the batch and its length.
    pub(crate) fn push(&mut self, seed: u32, record: Record<'_>) -> (usize, usize) {
        if self.bytes.is_empty() {
            self.bytes.resize(BATCH_HEAD, 0);
        }
        let start = self.bytes.len();
        let length = (COUNTED_HEAD + record.payload.len()) as u32;
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.push(record.kind as u8);
        self.bytes.extend_from_slice(&record.id.term.to_le_bytes());
        self.bytes.extend_from_slice(&record.id.index.to_le_bytes());
        self.bytes.extend_from_slice(record.payload);
        let crc = crc(seed, &self.bytes[start + 8..]);
        self.bytes[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        self.records += 1;
        (start, self.bytes.len() - start)
    }

    /// Completes the batch for its place and returns the bytes to write.
    pub(crate) fn finish(&mut self, seed: u32, number: u64, offset: u64) -> &[u8] {
        self.bytes.resize(self.disk_len(0) as usize, 0);
        let head = Head {
            body_len: (self.bytes.len() - BATCH_HEAD) as u32,
            number,
            body_crc: crc(seed, &self.bytes[BATCH_HEAD..]),
            records: self.records,
        };
        let encoded = head.encode(seed, offset);
        self.bytes[..BATCH_HEAD].copy_from_slice(&encoded);
        &self.bytes
    }

    /// Forgets everything, and keeps the memory unless it grew beyond `keep` bytes.
    pub(crate) fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
        self.records = 0;
    }
}

/// The head of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) body_len: u32,
    pub(crate) number: u64,
    pub(crate) body_crc: u32,
    pub(crate) records: u32,
}

impl Head {
    fn encode(&self, seed: u32, offset: u64) -> [u8; BATCH_HEAD] {
        let mut bytes = [0; BATCH_HEAD];
        bytes[..4].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&offset.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[28..].copy_from_slice(&self.records.to_le_bytes());
        let crc = head_crc(seed, &bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns the head at `offset` of a segment if one is there and intact.
    pub(crate) fn find(segment: &[u8], seed: u32, offset: usize) -> Option<Self> {
        let bytes = segment.get(offset..offset + BATCH_HEAD)?;
        let body_len = u32_at(bytes, 0);
        if body_len == 0
            || u32_at(bytes, 4) != head_crc(seed, bytes)
            || u64_at(bytes, 16) != offset as u64
            || segment.len() - offset - BATCH_HEAD < body_len as usize
        {
            return None;
        }
        Some(Self {
            body_len,
            number: u64_at(bytes, 8),
            body_crc: u32_at(bytes, 24),
            records: u32_at(bytes, 28),
        })
    }

    /// Returns the body that belongs to this head at `offset` if it is intact.
    pub(crate) fn body<'a>(&self, segment: &'a [u8], seed: u32, offset: usize) -> Option<&'a [u8]> {
        let start = offset + BATCH_HEAD;
        let body = segment.get(start..start + self.body_len as usize)?;
        (crc(seed, body) == self.body_crc).then_some(body)
    }
}

/// Reads the record at the start of `bytes` and returns it with its length.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn decode(seed: u32, bytes: &[u8]) -> Result<(Record<'_>, usize), String> {
    let length = match bytes.get(..4) {
        Some(_) => u32_at(bytes, 0) as usize,
        None => return Err("a record is cut short".to_owned()),
    };
    let end = length.saturating_add(8);
    if length < COUNTED_HEAD || end > bytes.len() {
        return Err(format!("a record claims a length of {length} bytes"));
    }
    let (stored, actual) = (u32_at(bytes, 4), crc(seed, &bytes[8..end]));
    if stored != actual {
        return Err(format!(
            "a record's checksum is {actual:08x}, {stored:08x} was stored"
        ));
    }
    let Some(kind) = Kind::from_byte(bytes[8]) else {
        return Err(format!("a record has the unknown kind {}", bytes[8]));
    };
    let id = EntryId {
        term: u64_at(bytes, 9),
        index: u64_at(bytes, 17),
    };
    Ok((
        Record {
            kind,
            id,
            payload: &bytes[RECORD_HEAD..end],
        },
        end,
    ))
}

fn head_crc(seed: u32, head: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(&head[..4]);
    hasher.update(&head[8..BATCH_HEAD]);
    hasher.finalize()
}
