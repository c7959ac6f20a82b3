//! Records from disk back to entries, while the log is open.

use bytes::Bytes;

use crate::format::decode;
use crate::index::ReadRange;
use crate::{Damage, LogEntry, WalError};

/// Reads neighbouring records with one read.
pub(crate) fn read_entries(range: &ReadRange) -> Result<Vec<LogEntry>, WalError> {
    let ReadRange { segment, locs, .. } = range;
    let (Some(first), Some(last)) = (locs.first(), locs.last()) else {
        return Ok(Vec::new());
    };
    let begin = u64::from(first.offset);
    let end = u64::from(last.offset) + u64::from(last.len);
    let mut buffer = vec![0; (end - begin) as usize];
    segment
        .file
        .read_at(&mut buffer, begin)
        .map_err(|error| WalError::io("read", &segment.path, error))?;
    locs.iter()
        .zip(range.first..)
        .map(|(loc, index)| {
            let at = (loc.offset - first.offset) as usize;
            let damaged = |found| {
                let (path, offset) = (segment.path.clone(), u64::from(loc.offset));
                WalError::Damaged(Damage {
                    path,
                    offset,
                    found,
                })
            };
            let (record, _) = decode(segment.seed, &buffer[at..]).map_err(damaged)?;
            if record.id.index != index {
                return Err(damaged(format!(
                    "entry {} in place of {index}",
                    record.id.index
                )));
            }
            let payload = Bytes::copy_from_slice(record.payload);
            Ok(LogEntry {
                id: record.id,
                payload,
            })
        })
        .collect()
}
