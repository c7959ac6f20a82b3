//! What a write leaves that was cut off by a crash: bytes behind the end of the log, of which
//! no caller learned that they are durable.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// What the log writes whole: batches fill pages, and what a crash leaves begins behind them.
const PAGE: usize = 4096;
/// How a segment of the log begins.
const MAGIC: &[u8] = b"RFWALSEG";
/// Where its number stands.
const SEQUENCE: std::ops::Range<usize> = 16..24;

/// Writes up to so many bytes of rubbish behind the log under `dir`, from the next page on; the
/// node must be down. Says how many and where.
///
/// # Errors
/// If there is no log, or no room behind it.
pub(crate) fn tear(dir: &Path, bytes: u32, seed: u64) -> io::Result<(usize, PathBuf)> {
    let mut newest: Option<(u64, PathBuf, usize, usize)> = None;
    for path in files(dir)? {
        let content = std::fs::read(&path)?;
        if content.len() <= PAGE || !content.starts_with(MAGIC) {
            continue;
        }
        let mut number = [0; 8];
        number.copy_from_slice(&content[SEQUENCE]);
        let number = u64::from_le_bytes(number);
        // Segments in reserve have a header and zeros.
        let last = content.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        if last >= PAGE && newest.as_ref().is_none_or(|(other, ..)| *other < number) {
            newest = Some((number, path, last, content.len()));
        }
    }
    let (_, path, last, length) =
        newest.ok_or_else(|| io::Error::other("no segment of a log was found"))?;
    let start = (last + 1).next_multiple_of(PAGE);
    let room = length.saturating_sub(start).min(bytes as usize);
    if room == 0 {
        return Err(io::Error::other("the log's newest segment is full"));
    }
    let mut rubbish = vec![0; room];
    StdRng::seed_from_u64(seed).fill_bytes(&mut rubbish);
    let file = File::options().write(true).open(&path)?;
    file.write_all_at(&rubbish, start as u64)?;
    Ok((room, path))
}

fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            found.extend(files(&entry.path())?);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u64, used: usize) -> Vec<u8> {
        let mut bytes = vec![0; 8 * PAGE];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[SEQUENCE].copy_from_slice(&number.to_le_bytes());
        bytes[PAGE..PAGE + used].fill(7);
        bytes
    }

    #[test]
    fn rubbish_goes_behind_the_newest_written_segment_and_harms_nothing_before() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let log = dir.path().join("log");
        std::fs::create_dir(&log).expect("made");
        let write = |name: &str, bytes: &[u8]| std::fs::write(log.join(name), bytes).expect(name);
        write("1", &segment(1, 6 * PAGE));
        write("2", &segment(2, PAGE + 5));
        // In reserve.
        write("3", &segment(3, 0));

        let (torn, path) = tear(dir.path(), 700, 9).expect("torn");

        assert_eq!((torn, &path), (700, &log.join("2")));
        let after = std::fs::read(&path).expect("read");
        assert_eq!(after[..3 * PAGE], segment(2, PAGE + 5)[..3 * PAGE]);
        assert!(
            after[3 * PAGE..3 * PAGE + 700]
                .iter()
                .any(|byte| *byte != 0)
        );
        assert_eq!(after.len(), 8 * PAGE);
    }

    #[test]
    fn without_a_log_nothing_is_torn() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        tear(dir.path(), 700, 9).expect_err("no log");
    }
}
