//! The bytes of a backup: written from a frozen state, read and verified as a whole.
//!
//! ```text
//! magic · frame(records)… · frame(end)
//! ```
//!
//! Checksums tell where a file is damaged. Only the digest, kept elsewhere, tells that it is the file
//! that was written.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;
use ring::digest::{Context, SHA256};
use ringfence_core::{BackupContents, BackupDigest, BackupRecord, Frozen};
use ringfence_planted::{Bug, planted};
use ringfence_proto::DecodeError;
use ringfence_proto::raft as pb;
use ringfence_proto::record::{decode_backup_record, encode_backup_record};

use crate::store::frames::{
    HEAD_BYTES, Magic, next_record, read_frame, write_frame, write_records,
};

pub(crate) const MAGIC: &Magic = b"RFBACK01";
const KIND_RECORDS: u8 = 2;
const KIND_END: u8 = 3;
/// The longest frame of a backup, in bytes: a frame is closed at 1 MiB, and no record comes near that.
pub const BACKUP_FRAME_BYTES_MAX: usize = 2 << 20;

/// A backup, read to its end and verified.
///
/// Reading takes one frame of at most [`BACKUP_FRAME_BYTES_MAX`] at a time; what is kept is rules, bans
/// and names held by Pods, which have limits of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// What it says.
    pub contents: BackupContents,
    /// SHA-256 over all its bytes.
    pub digest: BackupDigest,
    /// How many bytes it has.
    pub bytes: u64,
}

/// A file that is no backup, or not the one that was meant.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file cannot be read.
    #[error("cannot read backup {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// Its bytes are damaged, or were never a backup.
    #[error(
        "backup {path} is damaged at byte {offset} ({why}); use another copy of it, or an older backup"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damaged part begins.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// It is sound, and this program does not know what it says.
    #[error(
        "backup {path} was written by a newer release ({why}); use that release or a newer one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        why: DecodeError,
    },
    /// It is a sound backup, and not the one that was meant.
    #[error(
        "backup {path} has the digest {found}, expected {expected}: it is another file than the one \
         whose digest was kept; look for the right file, and do not restore from this one"
    )]
    OtherDigest {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        expected: BackupDigest,
        /// What the file has.
        found: BackupDigest,
    },
}

/// Writes the backup of a state and says its digest.
///
/// # Errors
/// What `out` fails with; [`io::ErrorKind::InvalidInput`] if the state belongs to no cluster yet.
pub fn write_backup(state: &Frozen, out: impl Write) -> io::Result<BackupDigest> {
    let records = state.backup().ok_or_else(|| {
        let why = "the state belongs to no cluster yet, so there is nothing to back up";
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })?;
    let mut out = Hashed::new(out);
    out.write_all(MAGIC)?;
    let count = write_records(&mut out, KIND_RECORDS, records, encode_backup_record)?;
    let end = pb::SnapshotEnd { records: count };
    write_frame(&mut out, KIND_END, &end.encode_to_vec())?;
    out.flush()?;
    Ok(out.digest())
}

impl Backup {
    /// Reads a file to its end and verifies checksums, order, numbers and rights.
    ///
    /// # Errors
    /// [`BackupError`] says where the file is wrong, and what to do.
    pub fn read(path: &Path) -> Result<Self, BackupError> {
        let file = open_regular(path).map_err(|source| BackupError::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::read_from(path, file)
    }

    /// The same of any bytes; `path` names them in errors.
    ///
    /// # Errors
    /// See [`Backup::read`].
    pub fn read_from(path: &Path, input: impl Read) -> Result<Self, BackupError> {
        let mut records = Records {
            path,
            input: Hashed::new(BufReader::new(input)),
            offset: 0,
            frame: Bytes::new(),
            count: 0,
            failed: None,
            ended: false,
        };
        records.begin()?;
        let contents = BackupContents::from_records(&mut records);
        if let Some(failed) = records.failed.take() {
            return Err(failed);
        }
        let contents = contents.map_err(|why| records.damaged(why))?;
        // Every record was taken, so the end was read.
        Ok(Self {
            contents,
            bytes: records.offset,
            digest: records.input.digest(),
        })
    }

    /// The same backup, if it has this digest.
    ///
    /// # Errors
    /// [`BackupError::OtherDigest`]; `path` names the file in it.
    pub fn expect(self, path: &Path, expected: BackupDigest) -> Result<Self, BackupError> {
        if self.digest == expected || planted(Bug::BackupDigestPassedOver) {
            return Ok(self);
        }
        Err(BackupError::OtherDigest {
            path: path.to_owned(),
            expected,
            found: self.digest,
        })
    }
}

/// Opens a regular file. Opening a FIFO would wait for its other end, and a device may never end.
fn open_regular(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    let why =
        "it is no regular file, and a backup is one: copy the backup to a file, and name that";
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// The records of a file, read as they are asked for. A failure ends them and stays in `failed`.
struct Records<'a, R> {
    path: &'a Path,
    input: Hashed<BufReader<R>>,
    /// Where the next frame begins.
    offset: u64,
    frame: Bytes,
    count: u64,
    failed: Option<BackupError>,
    ended: bool,
}

impl<R: Read> Records<'_, R> {
    fn begin(&mut self) -> Result<(), BackupError> {
        let mut magic = Magic::default();
        match self.input.read_exact(&mut magic) {
            Ok(()) if &magic == MAGIC => self.offset = MAGIC.len() as u64,
            Err(source) if source.kind() != io::ErrorKind::UnexpectedEof => {
                return Err(BackupError::Io {
                    path: self.path.to_owned(),
                    source,
                });
            }
            _ => return Err(self.damaged("it does not begin as a backup")),
        }
        Ok(())
    }

    fn take_next(&mut self) -> Result<Option<BackupRecord>, BackupError> {
        while self.frame.is_empty() {
            let read = read_frame(&mut self.input, BACKUP_FRAME_BYTES_MAX);
            let (kind, body) = read.map_err(|why| self.damaged(why))?;
            match kind {
                KIND_RECORDS => self.frame = body.clone(),
                KIND_END => self.check_end(body.clone())?,
                kind => return Err(self.damaged(format!("a frame of kind {kind} here"))),
            }
            self.offset += (HEAD_BYTES + body.len()) as u64;
            if kind == KIND_END {
                return Ok(None);
            }
        }
        let record = next_record(&mut self.frame).map_err(|why| self.damaged(why))?;
        let record = decode_backup_record(&record).map_err(|why| match why.is_newer() {
            true => BackupError::Newer {
                path: self.path.to_owned(),
                why,
            },
            false => self.damaged(why),
        })?;
        self.count += 1;
        Ok(Some(record))
    }

    fn check_end(&mut self, body: Bytes) -> Result<(), BackupError> {
        let end = pb::SnapshotEnd::decode(body).map_err(|error| self.damaged(error))?;
        if end.records != self.count {
            let (has, says) = (self.count, end.records);
            return Err(self.damaged(format!("it has {has} records and says {says}")));
        }
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.damaged("bytes behind the end")),
            Err(error) => Err(self.damaged(error)),
        }
    }

    fn damaged(&self, why: impl ToString) -> BackupError {
        BackupError::Damaged {
            path: self.path.to_owned(),
            offset: self.offset,
            why: why.to_string(),
        }
    }
}

impl<R: Read> Iterator for Records<'_, R> {
    type Item = BackupRecord;

    fn next(&mut self) -> Option<BackupRecord> {
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

/// Bytes on their way, and the digest of those that have passed.
pub struct Hashed<T> {
    inner: T,
    context: Context,
}

impl<T> Hashed<T> {
    /// No byte has passed.
    pub fn new(inner: T) -> Self {
        let context = Context::new(&SHA256);
        Self { inner, context }
    }

    pub(crate) fn inner(&self) -> &T {
        &self.inner
    }

    /// The digest of a backup that has these bytes.
    pub fn digest(&self) -> BackupDigest {
        let digest = self.context.clone().finish();
        let mut bytes = [0; 32];
        // SHA-256 has 32 bytes.
        bytes.copy_from_slice(digest.as_ref());
        BackupDigest::new(bytes)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.context.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.context.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
