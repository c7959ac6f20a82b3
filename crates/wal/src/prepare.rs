//! Making segments ready: filling them with zeros, giving them a header and a name.
//!
//! The writer overwrites zeros that are already on the medium, so that its sync carries no
//! change of length or extents. Purged segments are filled with zeros and used again, because
//! giving their blocks back and taking them again stalls every sync on the file system.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_planted::{Bug, planted};

use crate::WalError;
use crate::fs::{Fs, FsFile};
use crate::segment::{FileName, Segment, SegmentHeader};

/// Bytes filled with zeros, or given back, between two pauses: as much as a sync of the writer
/// may have to wait behind.
const STEP_BYTES: u64 = 1024 * 1024;
/// Purged segments kept to be used again. More than a peak of the log's length needs no keeping.
const MAX_FREE_FILES: usize = 16;

/// Called between two steps; `Break` means to give up.
pub(crate) type Pause<'a> = &'a mut dyn FnMut() -> ControlFlow<()>;

/// An open file and its path.
type Opened = (PathBuf, Arc<dyn FsFile>);

/// Makes segments ready, and takes purged ones back.
pub(crate) struct Preparer {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) identity: Vec<u8>,
    pub(crate) salt: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) next_sequence: u64,
    pub(crate) next_file: u64,
    /// Purged files that wait to be used again.
    pub(crate) free: VecDeque<PathBuf>,
    /// Set by a failure that must not be tried again.
    pub(crate) broken: Option<WalError>,
}

impl Preparer {
    /// Makes the next segment ready, from a purged file if there is one.
    ///
    /// # Errors
    /// The file system's refusal. Only a lack of space may be tried again.
    pub(crate) fn prepare(&mut self, pause: Pause<'_>) -> Result<Segment, WalError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let made = match self.reusable()? {
            Some((path, file)) => self.fill(path, file, pause),
            None => {
                let path = FileName::New(self.next_file).in_dir(&self.dir);
                self.next_file += 1;
                match self.fs.create(&path) {
                    Ok(file) => self.fill(path, file, pause),
                    Err(error) => Err((path.clone(), WalError::io("create", &path, error))),
                }
            }
        };
        made.map_err(|(path, error)| {
            // An unfinished file only takes space; the next start removes it if this fails.
            drop(self.fs.remove(&path));
            self.keep_broken(error)
        })
        .and_then(|(path, file)| self.give_name(&path, file))
    }

    /// Takes back a segment whose every record is purged.
    ///
    /// # Errors
    /// The file system's refusal; final.
    pub(crate) fn retire(&mut self, segment: &Segment, pause: Pause<'_>) -> Result<(), WalError> {
        let path = FileName::Free(self.next_file).in_dir(&self.dir);
        self.next_file += 1;
        // Synced one by one, so that the segments left are without holes after any crash.
        self.fs
            .rename(&segment.path, &path)
            .map_err(|e| self.keep_broken(WalError::io("recycle", &segment.path, e)))?;
        self.sync_dir()?;
        if self.free.len() < MAX_FREE_FILES && segment.bytes == self.segment_bytes {
            self.free.push_back(path);
            return Ok(());
        }
        let mut bytes = segment.bytes;
        while bytes > STEP_BYTES {
            bytes -= STEP_BYTES;
            segment
                .file
                .set_len(bytes)
                .map_err(|e| self.keep_broken(WalError::io("shorten", &path, e)))?;
            if pause().is_break() {
                break;
            }
        }
        self.fs
            .remove(&path)
            .map_err(|e| self.keep_broken(WalError::io("remove", &path, e)))
    }

    /// Returns a purged file of the right length, removing those of another.
    fn reusable(&mut self) -> Result<Option<Opened>, WalError> {
        while let Some(path) = self.free.pop_front() {
            let opened = self.fs.open(&path).and_then(|file| Ok((file.len()?, file)));
            let (bytes, file) =
                opened.map_err(|e| self.keep_broken(WalError::io("open", &path, e)))?;
            if bytes == self.segment_bytes {
                return Ok(Some((path, file)));
            }
            self.fs
                .remove(&path)
                .map_err(|e| self.keep_broken(WalError::io("remove", &path, e)))?;
        }
        Ok(None)
    }

    /// Fills the file with zeros and its header.
    fn fill(
        &self,
        path: PathBuf,
        file: Arc<dyn FsFile>,
        pause: Pause<'_>,
    ) -> Result<Opened, (PathBuf, WalError)> {
        let zeros = vec![0; STEP_BYTES.min(self.segment_bytes) as usize];
        let mut at = 0;
        while at < self.segment_bytes {
            let len = STEP_BYTES.min(self.segment_bytes - at);
            let step = file
                .write_at(&zeros[..len as usize], at)
                .and_then(|()| file.sync_data());
            if let Err(error) = step {
                return Err((path.clone(), WalError::io("preallocate", &path, error)));
            }
            at += len;
            if pause().is_break() {
                return Err((path, WalError::Closed));
            }
        }
        let header = SegmentHeader {
            sequence: self.next_sequence,
            salt: self.salt,
            bytes: self.segment_bytes,
            identity: self.identity.clone(),
        };
        match file
            .write_at(&header.encode(), 0)
            .and_then(|()| file.sync_data())
        {
            Ok(()) => Ok((path, file)),
            Err(error) => Err((
                path.clone(),
                WalError::io("write the header of", &path, error),
            )),
        }
    }

    /// Gives a finished file the name of the next segment.
    fn give_name(&mut self, from: &Path, file: Arc<dyn FsFile>) -> Result<Segment, WalError> {
        let sequence = self.next_sequence;
        let path = FileName::Segment(sequence).in_dir(&self.dir);
        self.fs
            .rename(from, &path)
            .map_err(|e| self.keep_broken(WalError::io("name the segment", &path, e)))?;
        self.sync_dir()?;
        self.next_sequence += 1;
        let header = SegmentHeader {
            sequence,
            salt: self.salt,
            bytes: self.segment_bytes,
            identity: Vec::new(),
        };
        Ok(Segment {
            sequence,
            path,
            file,
            seed: header.seed(),
            bytes: self.segment_bytes,
        })
    }

    fn sync_dir(&mut self) -> Result<(), WalError> {
        if planted(Bug::DirectoryNotSynced) {
            return Ok(());
        }
        let synced = self.fs.sync_dir(&self.dir);
        synced.map_err(|e| {
            let dir = self.dir.clone();
            self.keep_broken(WalError::io("sync directory", &dir, e))
        })
    }

    /// Remembers an error unless it may pass.
    fn keep_broken(&mut self, error: WalError) -> WalError {
        if !error.is_no_space() && !matches!(error, WalError::Closed) {
            self.broken = Some(error.clone());
        }
        error
    }
}
