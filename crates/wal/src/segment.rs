//! Segment files: their names, and the one sector that says whose they are.
//!
//! A file gets a segment's name only when its zeros and its header are durable. So a segment
//! with an unreadable header is damage, never a crash.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::{crc, u32_at, u64_at};
use crate::error::hex;
use crate::fs::FsFile;
use crate::{Damage, MAX_HEADER_BYTES, OpenError};

/// The length of a segment's header in bytes, and the block of segments of version 1.
pub(crate) const SECTOR: u64 = 512;
/// The block of a segment unless the device's is larger, in bytes: a page of the kernel. Nothing
/// acknowledged shares a block with what is written later.
pub(crate) const BLOCK: u64 = 4096;
/// The largest block, in bytes.
pub(crate) const MAX_BLOCK: u64 = 64 * 1024;

const MAGIC: &[u8; 8] = b"RFWALSEG";
/// Version 1 had blocks of one sector, and did not say so.
const VERSION: u32 = 2;
const IDENTITY_AT: usize = 40;
const BLOCK_AT: usize = IDENTITY_AT + MAX_HEADER_BYTES;
const CRC_AT: usize = SECTOR as usize - 4;

/// What a segment's first sector says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) sequence: u64,
    pub(crate) salt: u64,
    /// Length of the file in bytes.
    pub(crate) bytes: u64,
    /// Every batch begins at a multiple of this, the first one at the second block.
    pub(crate) block: u64,
    pub(crate) identity: Vec<u8>,
}

/// A segment that is ready to be written, or was written.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) sequence: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn FsFile>,
    /// Where every checksum in it starts.
    pub(crate) seed: u32,
    /// Length of the file in bytes.
    pub(crate) bytes: u64,
    /// Bytes per block; [`SegmentHeader::block`] of this segment.
    pub(crate) block: u64,
}

impl SegmentHeader {
    /// Where every checksum of the segment starts: different for any two segments of one opening,
    /// so that what a recycled file held before never passes for a record.
    pub(crate) fn seed(&self) -> u32 {
        crc(0, &self.sequence.to_le_bytes()) ^ (self.salt as u32)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!(
            self.identity.len() <= MAX_HEADER_BYTES,
            "checked by the options"
        );
        let mut out = vec![0; SECTOR as usize];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(self.identity.len() as u32).to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..32].copy_from_slice(&self.salt.to_le_bytes());
        out[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        out[IDENTITY_AT..IDENTITY_AT + self.identity.len()].copy_from_slice(&self.identity);
        out[BLOCK_AT..BLOCK_AT + 4].copy_from_slice(&(self.block as u32).to_le_bytes());
        let crc = crc(0, &out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the header of the segment at `path` from its first sector.
    fn decode(sector: &[u8], path: &Path) -> Result<Self, OpenError> {
        let damage = |found: String| {
            Err(OpenError::Damaged(Damage {
                path: path.to_owned(),
                offset: 0,
                found,
            }))
        };
        if sector.len() < SECTOR as usize {
            return damage(format!(
                "the file has {} bytes, no room for a header",
                sector.len()
            ));
        }
        let (stored, actual) = (u32_at(sector, CRC_AT), crc(0, &sector[..CRC_AT]));
        if stored != actual {
            return damage(format!(
                "the header's checksum is {actual:08x}, not {stored:08x}"
            ));
        }
        let (version, length) = (u32_at(sector, 8), u32_at(sector, 12) as usize);
        if &sector[..8] != MAGIC {
            return damage(format!(
                "it begins with {}, not with a segment's mark",
                hex(&sector[..8])
            ));
        }
        if !(1..=VERSION).contains(&version) {
            return Err(OpenError::UnknownVersion {
                path: path.to_owned(),
                found: version,
                known: VERSION,
            });
        }
        if length > MAX_HEADER_BYTES {
            return damage(format!("the header claims an identity of {length} bytes"));
        }
        let block = match version {
            1 => SECTOR,
            _ => u64::from(u32_at(sector, BLOCK_AT)),
        };
        if !block.is_power_of_two() || !(SECTOR..=MAX_BLOCK).contains(&block) {
            return damage(format!("the header claims blocks of {block} bytes"));
        }
        Ok(Self {
            block,
            sequence: u64_at(sector, 16),
            salt: u64_at(sector, 24),
            bytes: u64_at(sector, 32),
            identity: sector[IDENTITY_AT..IDENTITY_AT + length].to_vec(),
        })
    }

    /// Reads and checks the header of a segment against its name, its length and `identity`.
    pub(crate) fn check(
        content: &[u8],
        path: &Path,
        sequence: u64,
        identity: &[u8],
    ) -> Result<Self, OpenError> {
        let header = Self::decode(&content[..content.len().min(SECTOR as usize)], path)?;
        if header.identity != identity {
            return Err(OpenError::IdentityMismatch {
                path: path.to_owned(),
                expected: hex(identity),
                found: hex(&header.identity),
            });
        }
        let found = if header.sequence != sequence {
            format!(
                "it is segment {} under the name of segment {sequence}",
                header.sequence
            )
        } else if header.bytes != content.len() as u64 {
            format!(
                "the file has {} bytes, it was made with {}",
                content.len(),
                header.bytes
            )
        } else {
            return Ok(header);
        };
        let offset = (content.len() as u64).min(header.bytes);
        Err(OpenError::Damaged(Damage {
            path: path.to_owned(),
            offset,
            found,
        }))
    }
}

/// Returns true if a file of this name may lie in the directory of a log that is closed: a segment,
/// a purged one, or the lock. One that is being filled lies there only while a log is open.
#[must_use]
pub fn names_log_file(name: &str) -> bool {
    let kind = FileName::parse(name);
    name == "lock" || matches!(kind, Some(FileName::Segment(_) | FileName::Free(_)))
}

/// The kinds of files in a log's directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileName {
    /// A segment, by sequence number.
    Segment(u64),
    /// A segment that was purged and waits to be used again.
    Free(u64),
    /// A file being filled; never in use.
    New(u64),
}

impl FileName {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if let Some(digits) = name.strip_suffix(".wal") {
            let number = u64::from_str_radix(digits, 16).ok()?;
            return (digits.len() == 16).then_some(Self::Segment(number));
        }
        if let Some(number) = name.strip_prefix("free-") {
            return number.parse().ok().map(Self::Free);
        }
        name.strip_prefix("new-")?.parse().ok().map(Self::New)
    }

    pub(crate) fn in_dir(&self, dir: &Path) -> PathBuf {
        dir.join(match self {
            Self::Segment(number) => format!("{number:016x}.wal"),
            Self::Free(number) => format!("free-{number}"),
            Self::New(number) => format!("new-{number}"),
        })
    }
}
