//! Reading a log back: what is whole, what is a torn tail, what is damage.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_planted::{Bug, planted};

use crate::format::{BATCH_HEAD, Head, Kind, decode};
use crate::fs::{Fs, FsFile};
use crate::index::Loc;
use crate::replay::Replay;
use crate::segment::{BLOCK, FileName, Segment, SegmentHeader};
use crate::{Damage, OpenError};

/// A file that waits to be filled with zeros and used again.
pub(crate) type FreeFile = PathBuf;

/// What a directory contains.
pub(crate) struct Found {
    pub(crate) replay: Replay,
    /// Every segment up to the active one, oldest first.
    pub(crate) written: VecDeque<Written>,
    /// Empty segments after the active one.
    pub(crate) ready: VecDeque<Segment>,
    pub(crate) free: Vec<FreeFile>,
    /// The byte in the last of `written` at which the next batch goes.
    pub(crate) next_offset: u64,
    /// The number of the next batch.
    pub(crate) next_number: u64,
    /// Bytes of the torn tail.
    pub(crate) torn_bytes: u64,
    /// A number above that of every free or unfinished file.
    pub(crate) next_file: u64,
}

impl Found {
    /// Bytes in the segments up to the end of the log; 0 if there is none.
    pub(crate) fn log_bytes(&self) -> u64 {
        if self.written.is_empty() {
            return 0;
        }
        let full = self.written.iter().rev().skip(1);
        let full: u64 = full.map(|written| written.segment.bytes).sum();
        full + self.next_offset
    }
}

/// A segment that holds records.
pub(crate) struct Written {
    pub(crate) segment: Segment,
    /// The greatest index of any entry record in it.
    pub(crate) greatest: Option<u64>,
}

/// Lists `dir`, removes what a crash left half made, and reads every segment.
///
/// The payloads of the newest entries are kept, at most `keep_bytes` of them.
///
/// # Errors
/// Damage, another identity, an unknown version, or the file system's refusal.
pub(crate) fn recover(
    fs: &dyn Fs,
    dir: &Path,
    identity: &[u8],
    keep_bytes: u64,
) -> Result<Found, OpenError> {
    let names = list(fs, dir)?;
    let mut reader = Reader::default();
    reader.replay.keep_bytes = keep_bytes;
    let mut expected = None;
    for &sequence in &names.segments {
        let path = FileName::Segment(sequence).in_dir(dir);
        if let Some(missing) = expected
            && missing != sequence
        {
            return Err(OpenError::Damaged(Damage {
                path: FileName::Segment(missing).in_dir(dir),
                offset: 0,
                found: format!("the file is missing, but segment {sequence} is there"),
            }));
        }
        expected = Some(sequence + 1);
        reader.read(fs, path, sequence, identity)?;
    }
    if names.segments.is_empty() && !names.free.is_empty() {
        return Err(OpenError::Damaged(Damage {
            path: dir.to_owned(),
            offset: 0,
            found: "files of an older log are there, but no segment".to_owned(),
        }));
    }
    reader.finish(names)
}

#[derive(Default)]
struct Names {
    segments: Vec<u64>,
    free: Vec<FreeFile>,
    next_file: u64,
}

fn list(fs: &dyn Fs, dir: &Path) -> Result<Names, OpenError> {
    // A process that was killed may have renamed without syncing: what we see must be durable
    // before anything is built on it.
    fs.sync_dir(dir)
        .map_err(|e| OpenError::io("sync directory", dir, e))?;
    let listed = fs
        .list(dir)
        .map_err(|e| OpenError::io("list directory", dir, e))?;
    let mut names = Names::default();
    for name in listed.iter().filter_map(|name| FileName::parse(name)) {
        let path = name.in_dir(dir);
        match name {
            FileName::Segment(sequence) => names.segments.push(sequence),
            FileName::Free(number) => {
                names.next_file = names.next_file.max(number + 1);
                names.free.push(path);
            }
            FileName::New(number) => {
                names.next_file = names.next_file.max(number + 1);
                fs.remove(&path)
                    .map_err(|e| OpenError::io("remove unfinished file", &path, e))?;
            }
        }
    }
    names.segments.sort_unstable();
    names.free.sort_unstable();
    Ok(names)
}

/// Where the log may end: at the first batch that is not there.
struct End {
    path: PathBuf,
    offset: u64,
    found: String,
    /// The place in `Reader::segments`.
    segment: usize,
}

#[derive(Default)]
struct Reader {
    replay: Replay,
    segments: Vec<Written>,
    /// For each segment, the bytes after the last batch, up to the last that is not zero.
    rest: Vec<u64>,
    next_number: Option<u64>,
    end: Option<End>,
}

impl Reader {
    fn read(
        &mut self,
        fs: &dyn Fs,
        path: PathBuf,
        sequence: u64,
        identity: &[u8],
    ) -> Result<(), OpenError> {
        let (file, content) = load(fs, &path)?;
        let header = SegmentHeader::check(&content, &path, sequence, identity)?;
        let segment = Segment {
            sequence,
            path,
            file,
            seed: header.seed(),
            bytes: content.len() as u64,
            block: header.block,
        };
        let offset = self.batches(&segment, &content)?;
        let rest = content.get(offset..).unwrap_or_default();
        let junk = rest
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at as u64 + 1);
        self.rest.push(junk);
        Ok(())
    }

    /// Reads batches until one is not there; returns where it should have been.
    fn batches(&mut self, segment: &Segment, content: &[u8]) -> Result<usize, OpenError> {
        let first = segment.block as usize;
        let mut offset = first;
        let mut greatest = None;
        let place = self.segments.len();
        let seed = segment.seed;
        // An older segment that ends in zeros was full, so the log goes on here. Otherwise what
        // is unreadable there was durable when the first byte was written here.
        if let Some(end) = &self.end
            && content.iter().skip(first).any(|byte| *byte != 0)
        {
            if end.segment + 1 != place || self.rest[end.segment] != 0 {
                return Err(self.damage(segment, first, String::new));
            }
            self.end = None;
        }
        let problem = loop {
            let Some(head) = Head::find(content, seed, offset) else {
                self.refuse_later(segment, content, offset)?;
                break "no batch begins here".to_owned();
            };
            let end = offset + BATCH_HEAD + head.body_len as usize;
            // A batch of another number than the next: what lies between is gone.
            if *self.next_number.get_or_insert(head.number) != head.number {
                let expected = self.next_number.unwrap_or(0);
                let number = head.number;
                return Err(self.damage(segment, offset, || {
                    format!("batch {number} is there in place of batch {expected}")
                }));
            }
            let Some(body) = head.body(content, seed, offset) else {
                // A torn write leaves nothing behind its own end.
                if let Some(at) = content[end..].iter().position(|byte| *byte != 0) {
                    let at = end + at;
                    return Err(self.damage(segment, offset, || {
                        format!("unreadable, though something follows at byte {at}")
                    }));
                }
                break format!("the content of batch {} has another checksum", head.number);
            };
            self.records(segment, body, offset + BATCH_HEAD, head, &mut greatest)?;
            self.next_number = Some(head.number + 1);
            offset = end;
        };
        self.segments.push(Written {
            segment: segment.clone(),
            greatest,
        });
        if self.end.is_none() {
            self.end = Some(End {
                path: segment.path.clone(),
                offset: offset as u64,
                found: problem,
                segment: place,
            });
        }
        Ok(offset)
    }

    /// Applies the records of one batch.
    fn records(
        &mut self,
        segment: &Segment,
        body: &[u8],
        start: usize,
        head: Head,
        greatest: &mut Option<u64>,
    ) -> Result<(), OpenError> {
        let mut at = 0;
        for _ in 0..head.records {
            let applied = decode(segment.seed, &body[at..]).and_then(|(record, len)| {
                let loc = Loc {
                    segment: segment.sequence,
                    offset: (start + at) as u32,
                    len: len as u32,
                };
                if record.kind == Kind::Entry {
                    *greatest = (*greatest).max(Some(record.id.index));
                }
                self.replay.apply(record, loc).map(|()| len)
            });
            match applied {
                Ok(len) => at += len,
                Err(found) => {
                    return Err(OpenError::Damaged(Damage {
                        path: segment.path.clone(),
                        offset: (start + at) as u64,
                        found,
                    }));
                }
            }
        }
        Ok(())
    }

    /// Refuses if any batch of this segment begins after `unreadable`: it proves that what should
    /// be there was durable.
    fn refuse_later(
        &self,
        segment: &Segment,
        content: &[u8],
        unreadable: usize,
    ) -> Result<(), OpenError> {
        if planted(Bug::DamageTakenForTornTail) {
            return Ok(());
        }
        let block = segment.block as usize;
        let mut at = unreadable + block;
        while at < content.len() {
            if let Some(head) = Head::find(content, segment.seed, at) {
                return Err(self.damage(segment, unreadable, || {
                    format!(
                        "unreadable, though batch {} follows at byte {at}",
                        head.number
                    )
                }));
            }
            at += block;
        }
        Ok(())
    }

    /// The error for damage at `offset` of `segment`, or at the earlier place that began it.
    fn damage(&self, segment: &Segment, offset: usize, found: impl Fn() -> String) -> OpenError {
        let damage = match &self.end {
            Some(end) => Damage {
                path: end.path.clone(),
                offset: end.offset,
                found: format!(
                    "{}, though more was written to {}",
                    end.found,
                    segment.path.display()
                ),
            },
            None => Damage {
                path: segment.path.clone(),
                offset: offset as u64,
                found: found(),
            },
        };
        OpenError::Damaged(damage)
    }

    /// Cuts the torn tail and hands over what was found.
    fn finish(mut self, names: Names) -> Result<Found, OpenError> {
        let mut found = Found {
            replay: Replay::default(),
            written: VecDeque::new(),
            ready: VecDeque::new(),
            free: names.free,
            next_offset: BLOCK,
            next_number: self.next_number.unwrap_or(1),
            torn_bytes: 0,
            next_file: names.next_file,
        };
        let Some(end) = self.end else {
            return Ok(found);
        };
        self.replay.finish().map_err(|missing| {
            let path = self.segments[0].segment.path.clone();
            OpenError::Damaged(Damage {
                path,
                offset: self.segments[0].segment.block,
                found: missing,
            })
        })?;
        found.replay = self.replay;
        found.next_offset = end.offset;
        for (place, written) in self.segments.into_iter().enumerate() {
            if place < end.segment {
                found.written.push_back(written);
                continue;
            }
            let from = if place == end.segment {
                end.offset
            } else {
                written.segment.block
            };
            erase(&written.segment, from, self.rest[place])?;
            found.torn_bytes += self.rest[place];
            if place == end.segment {
                found.written.push_back(written);
            } else {
                found.ready.push_back(written.segment);
            }
        }
        Ok(found)
    }
}

/// Reads a whole segment as the medium holds it.
fn load(fs: &dyn Fs, path: &Path) -> Result<(Arc<dyn FsFile>, Vec<u8>), OpenError> {
    let file = fs.open(path).map_err(|e| OpenError::io("open", path, e))?;
    // A process that was killed may have written without syncing, and a failed sync may have
    // left pages in the cache that never reached the medium. Neither may be believed as it is.
    file.sync_data()
        .map_err(|e| OpenError::io("sync", path, e))?;
    file.drop_cache()
        .map_err(|e| OpenError::io("drop the cache of", path, e))?;
    let bytes = file.len().map_err(|e| OpenError::io("measure", path, e))?;
    if bytes > crate::MAX_SEGMENT_BYTES {
        let found = format!("the file has {bytes} bytes, more than any segment");
        return Err(OpenError::Damaged(Damage {
            path: path.to_owned(),
            offset: 0,
            found,
        }));
    }
    let mut content = vec![0; bytes as usize];
    file.read_at(&mut content, 0)
        .map_err(|e| OpenError::io("read", path, e))?;
    Ok((file, content))
}

/// Fills `bytes` bytes from `from` with zeros, durably.
fn erase(segment: &Segment, from: u64, bytes: u64) -> Result<(), OpenError> {
    if bytes == 0 || planted(Bug::TornTailLeft) {
        return Ok(());
    }
    let zeros = vec![0; bytes as usize];
    segment
        .file
        .write_at(&zeros, from)
        .and_then(|()| segment.file.sync_data())
        .map_err(|e| OpenError::io("cut the torn tail of", &segment.path, e))
}
