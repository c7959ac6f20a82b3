//! The bytes of a snapshot file: frames, and the records in them.
//!
//! ```text
//! magic · frame(header) · frame(records)… · frame(end)
//! ```
//!
//! Both ways there is one frame in memory at a time, however large the state is.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use ringfence_core::snapshot::Record;
use ringfence_planted::{Bug, planted};
use ringfence_proto::DecodeError;
use ringfence_proto::raft as pb;
use ringfence_proto::record::{decode_record, encode_record};
use ringfence_wal::Fs;

use crate::platform::files::{self, Through};
use crate::store::frames::{
    HEAD_BYTES, Magic, next_record, read_frame, write_frame, write_records,
};
use crate::store::snapshot_error::SnapshotError;

const MAGIC: &Magic = b"RFSNAP01";
const KIND_HEADER: u8 = 1;
const KIND_RECORDS: u8 = 2;
const KIND_END: u8 = 3;
/// No frame is longer: a length above it is damage. One record may be as long as a session with
/// all its leases and answers.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// Writes a file with these records and syncs it.
pub(crate) fn write_frames(
    files: &dyn Fs,
    path: &Path,
    header: &pb::SnapshotHeader,
    records: impl Iterator<Item = Record>,
) -> io::Result<()> {
    let mut file = BufWriter::new(Through::write(files, path)?);
    file.write_all(MAGIC)?;
    write_frame(&mut file, KIND_HEADER, &header.encode_to_vec())?;
    let count = write_records(&mut file, KIND_RECORDS, records, encode_record)?;
    let end = pb::SnapshotEnd { records: count };
    write_frame(&mut file, KIND_END, &end.encode_to_vec())?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    if planted(Bug::SnapshotNotSynced) {
        return Ok(());
    }
    file.sync()
}

/// Writes a file of any frames, with the checksums that they must have.
#[cfg(any(test, fuzzing))]
pub(crate) fn write_raw_frames<'a>(
    path: &Path,
    frames: impl Iterator<Item = (u8, &'a [u8])>,
) -> io::Result<()> {
    let mut file = MAGIC.to_vec();
    for (kind, body) in frames {
        write_frame(&mut file, kind, body)?;
    }
    std::fs::write(path, file)
}

/// A file that is being read, from its first frame to its last.
pub(crate) struct Frames<'a> {
    path: &'a Path,
    input: BufReader<Through>,
    /// Where the next frame begins.
    offset: u64,
    /// How many records there are, once the end was read.
    count: Option<u64>,
}

impl<'a> Frames<'a> {
    /// Opens a file and reads its header.
    pub(crate) fn open(
        files: &dyn Fs,
        path: &'a Path,
    ) -> Result<(Self, pb::SnapshotHeader), SnapshotError> {
        let file = files::patiently(|| Through::read(files, path));
        let file = file.map_err(|source| SnapshotError::io(path, source))?;
        let mut frames = Self {
            path,
            input: BufReader::new(file),
            offset: 0,
            count: None,
        };
        let mut magic = [0; MAGIC.len()];
        let read = frames.input.read_exact(&mut magic);
        read.map_err(|error| frames.damaged(error))?;
        if &magic != MAGIC {
            return Err(frames.damaged("it does not begin as a snapshot"));
        }
        frames.offset = MAGIC.len() as u64;
        let header = match frames.next_frame()? {
            (KIND_HEADER, body) => pb::SnapshotHeader::decode(body),
            _ => return Err(frames.damaged("it has no header")),
        };
        let header = header.map_err(|error| frames.damaged(error))?;
        Ok((frames, header))
    }

    /// The records; a reader that stops before their end has not checked the rest of the file.
    pub(crate) fn records(self) -> Records<'a> {
        Records {
            frames: self,
            frame: Bytes::new(),
            count: 0,
            failed: None,
            ended: false,
        }
    }

    /// Reads all frames without a look at their records.
    pub(crate) fn check(mut self) -> Result<(), SnapshotError> {
        while let Some(frame) = self.next_records()? {
            drop(frame);
        }
        Ok(())
    }

    /// The next frame of records; `None` at the end of the file, if it is its true end.
    fn next_records(&mut self) -> Result<Option<Bytes>, SnapshotError> {
        let before = self.offset;
        match self.next_frame()? {
            (KIND_RECORDS, body) => Ok(Some(body)),
            (KIND_END, body) => {
                let end = pb::SnapshotEnd::decode(body).map_err(|error| self.damaged(error))?;
                self.count = Some(end.records);
                match self.input.read(&mut [0]) {
                    Ok(0) => Ok(None),
                    Ok(_) => Err(self.damaged("bytes behind the end")),
                    Err(source) => Err(SnapshotError::io(self.path, source)),
                }
            }
            (kind, _) => {
                self.offset = before;
                Err(self.damaged(format!("a frame of kind {kind} here")))
            }
        }
    }

    fn next_frame(&mut self) -> Result<(u8, Bytes), SnapshotError> {
        let frame = read_frame(&mut self.input, FRAME_BYTES_MAX);
        let (kind, body) = frame.map_err(|why| self.damaged(why))?;
        self.offset += (HEAD_BYTES + body.len()) as u64;
        Ok((kind, body))
    }

    pub(crate) fn damaged(&self, why: impl ToString) -> SnapshotError {
        SnapshotError::Damaged {
            path: self.path.to_owned(),
            offset: self.offset,
            why: why.to_string(),
        }
    }

    /// The error for a record that means nothing to this program.
    fn not_read(&self, why: DecodeError) -> SnapshotError {
        match why.is_newer() {
            true => SnapshotError::Newer {
                path: self.path.to_owned(),
                why,
            },
            false => self.damaged(why),
        }
    }
}

/// The records of a file, read as they are asked for. A failure ends them: ask
/// [`Records::finish`] whether there was one.
pub(crate) struct Records<'a> {
    frames: Frames<'a>,
    frame: Bytes,
    count: u64,
    failed: Option<SnapshotError>,
    ended: bool,
}

impl Records<'_> {
    /// # Errors
    /// If the file could not be read to its end, or has another number of records than it says.
    pub(crate) fn finish(mut self) -> Result<(), SnapshotError> {
        while self.next().is_some() {}
        self.failed.map_or(Ok(()), Err)
    }

    pub(crate) fn damaged(&self, why: impl ToString) -> SnapshotError {
        self.frames.damaged(why)
    }

    fn take_next(&mut self) -> Result<Option<Record>, SnapshotError> {
        while self.frame.is_empty() {
            match self.frames.next_records()? {
                Some(frame) => self.frame = frame,
                None if self.frames.count == Some(self.count) => return Ok(None),
                None => {
                    let why = format!("{} records, not as many as it says", self.count);
                    return Err(self.frames.damaged(why));
                }
            }
        }
        let record = next_record(&mut self.frame).map_err(|why| self.frames.damaged(why))?;
        let record = decode_record(&record).map_err(|error| self.frames.not_read(error))?;
        self.count += 1;
        Ok(Some(record))
    }
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.ended {
            return None;
        }
        let next = self.take_next().unwrap_or_else(|error| {
            self.failed = Some(error);
            None
        });
        self.ended = next.is_none();
        next
    }
}
