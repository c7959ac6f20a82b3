//! Looking at a log without opening it.

use std::path::Path;

use crate::fs::Fs;
use crate::open::lock;
use crate::recover::recover;
use crate::{OpenError, Recovered};

/// Reads back the log in `dir` that belongs to `header`, as opening it would, and writes nothing
/// into it: a torn tail is left out and stays where it is.
///
/// # Errors
/// [`OpenError`]: a directory that cannot be used or is in use, another identity, or damage.
pub fn read_back(fs: &dyn Fs, dir: &Path, header: &[u8]) -> Result<Recovered, OpenError> {
    let _lock = lock(fs, dir)?;
    let found = recover(fs, dir, header, u64::MAX)?;
    let log_bytes = found.log_bytes();
    let marks = found.replay.marks;
    Ok(Recovered {
        vote: marks.vote,
        committed: marks.committed.map(|(_, mark)| mark),
        purged: marks.purged,
        last: marks.last,
        log_bytes,
        live_bytes: found
            .replay
            .places
            .iter()
            .map(|(_, loc)| u64::from(loc.len))
            .sum(),
        entries: found.replay.newest.into(),
        truncated_tail_bytes: found.torn_bytes,
    })
}
