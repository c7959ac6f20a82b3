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
use crate::error::lacks_descriptors;
use crate::fs::{Fs, FsFile};
use crate::options::OnSpare;
use crate::segment::{FileName, Segment, SegmentHeader};
use crate::stats::SpareCounters;

/// Bytes filled with zeros, or given back, between two pauses: as much as a sync of the writer
/// may have to wait behind.
const STEP_BYTES: u64 = 1024 * 1024;
/// Purged segments kept to be used again. More than a peak of the log's length needs no keeping.
const MAX_FREE_FILES: usize = 16;

/// Called between two steps; `Break` means to give up.
pub(crate) type Pause<'a> = &'a mut dyn FnMut() -> ControlFlow<()>;

/// An open file and its path.
type Opened = (PathBuf, Arc<dyn FsFile>);

/// A purged file that is not used again.
pub(crate) struct Surplus {
    path: PathBuf,
    file: Arc<dyn FsFile>,
    bytes: u64,
}

/// Makes segments ready, and takes purged ones back.
pub(crate) struct Preparer {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) identity: Vec<u8>,
    pub(crate) salt: u64,
    pub(crate) segment_bytes: u64,
    /// The block of new segments, in bytes.
    pub(crate) block: u64,
    pub(crate) next_sequence: u64,
    pub(crate) next_file: u64,
    /// Purged files that wait to be used again.
    pub(crate) free: VecDeque<PathBuf>,
    /// Set by a failure that must not be tried again.
    pub(crate) broken: Option<WalError>,
    /// The directory was changed and could not be opened to be synced. Nothing else is done before.
    pub(crate) owes_sync: bool,
    /// A segment that is ready but for that sync.
    pub(crate) named: Option<Segment>,
    /// Purged files that are too many or of another length. They go after that sync: until then a
    /// power failure may give them the names of segments back.
    pub(crate) surplus: Vec<Surplus>,
    pub(crate) counters: Arc<SpareCounters>,
    pub(crate) on_spare: OnSpare,
    /// The last preparation failed, and `on_spare` was called.
    pub(crate) failing: bool,
}

impl Preparer {
    /// Makes the next segment ready, from a purged file if there is one.
    ///
    /// # Errors
    /// The file system's refusal, which may be tried again if it is [`WalError::NotPrepared`].
    pub(crate) fn prepare(&mut self, pause: Pause<'_>) -> Result<Segment, WalError> {
        let prepared = self.try_prepare(pause);
        match &prepared {
            Ok(_) => {
                self.counters.prepared();
                if std::mem::take(&mut self.failing) {
                    (self.on_spare)(None);
                }
            }
            Err(WalError::Closed) => {}
            Err(error) => {
                self.counters.failed(error.is_no_space());
                self.tell(error);
            }
        }
        prepared
    }

    /// Says once that something failed: it is tried again every second.
    fn tell(&mut self, error: &WalError) {
        if !std::mem::replace(&mut self.failing, true) {
            (self.on_spare)(Some(error));
        }
    }

    fn try_prepare(&mut self, pause: Pause<'_>) -> Result<Segment, WalError> {
        self.settle(pause)?;
        if let Some(named) = self.named.take() {
            return Ok(named);
        }
        let (path, file) = match self.reusable()? {
            Some(opened) => opened,
            None => self.create()?,
        };
        match self.fill(&path, file.as_ref(), pause) {
            Ok(()) => self.give_name(&path, file),
            Err(error) => {
                // An unfinished file only takes space; the next start removes it if this fails.
                self.fs.remove(&path).ok();
                Err(self.judge(error))
            }
        }
    }

    /// Takes back a segment whose every record is purged.
    ///
    /// # Errors
    /// The file system's refusal. If it is [`WalError::NotPrepared`], the segment is still there
    /// under its name: the same one has to be taken back before any newer one.
    pub(crate) fn retire(&mut self, segment: &Segment, pause: Pause<'_>) -> Result<(), WalError> {
        let renamed = self.settle(pause);
        let path = match renamed.and_then(|()| self.rename_free(segment)) {
            Ok(path) => path,
            Err(error) => {
                self.tell(&error);
                return if planted(Bug::RefusedSegmentDropped) {
                    Ok(())
                } else {
                    Err(error)
                };
            }
        };
        if self.free.len() < MAX_FREE_FILES && segment.bytes == self.segment_bytes {
            self.free.push_back(path);
        } else {
            self.surplus.push(Surplus {
                path,
                file: Arc::clone(&segment.file),
                bytes: segment.bytes,
            });
        }
        if planted(Bug::CutBeforeRenamed) {
            self.remove_surplus(pause);
        }
        // Synced one by one, so that the segments left are without holes after any crash. Before
        // that nothing else is done: what could not be begun is made up for by the next call.
        self.owes_sync = true;
        self.settle(pause).or_else(passes)
    }

    /// Gives the blocks of surplus files back, in steps.
    fn remove_surplus(&mut self, pause: Pause<'_>) {
        for surplus in self.surplus.drain(..) {
            let mut bytes = surplus.bytes;
            while bytes > STEP_BYTES {
                bytes -= STEP_BYTES;
                if surplus.file.set_len(bytes).is_err() || pause().is_break() {
                    break;
                }
            }
            // A file that stays only takes space; the next start finds it.
            self.fs.remove(&surplus.path).ok();
        }
    }

    /// Gives a segment the name of a purged file.
    fn rename_free(&mut self, segment: &Segment) -> Result<PathBuf, WalError> {
        let path = FileName::Free(self.next_file).in_dir(&self.dir);
        self.next_file += 1;
        let renamed = self.fs.rename(&segment.path, &path);
        renamed.map_err(|e| WalError::not_prepared("recycle", &segment.path, e))?;
        Ok(path)
    }

    /// Returns a purged file of the right length, removing those of another and those that cannot be
    /// opened.
    fn reusable(&mut self) -> Result<Option<Opened>, WalError> {
        while let Some(path) = self.free.pop_front() {
            let opened = self.fs.open(&path).and_then(|file| Ok((file.len()?, file)));
            match opened {
                Ok((bytes, file)) if bytes == self.segment_bytes => return Ok(Some((path, file))),
                // A file that stays only takes space; the next start finds it.
                Ok(_) => {
                    self.fs.remove(&path).ok();
                }
                Err(error) if lacks_descriptors(&error) || planted(Bug::BadFreeFileKept) => {
                    let error = WalError::not_prepared("open", &path, error);
                    self.free.push_back(path);
                    return Err(error);
                }
                // It is gone, or cannot be read any more: another one does as well.
                Err(error) => {
                    self.tell(&WalError::not_prepared("open", &path, error));
                    self.fs.remove(&path).ok();
                }
            }
        }
        Ok(None)
    }

    fn create(&mut self) -> Result<Opened, WalError> {
        let path = FileName::New(self.next_file).in_dir(&self.dir);
        self.next_file += 1;
        match self.fs.create(&path) {
            Ok(file) => Ok((path, file)),
            Err(error) => Err(WalError::not_prepared("create", &path, error)),
        }
    }

    /// Fills the file with zeros and its header.
    fn fill(&self, path: &Path, file: &dyn FsFile, pause: Pause<'_>) -> Result<(), WalError> {
        let zeros = vec![0; STEP_BYTES.min(self.segment_bytes) as usize];
        let mut at = 0;
        while at < self.segment_bytes {
            let len = STEP_BYTES.min(self.segment_bytes - at);
            file.write_at(&zeros[..len as usize], at)
                .and_then(|()| file.sync_data())
                .map_err(|e| WalError::io("preallocate", path, e))?;
            at += len;
            if pause().is_break() {
                return Err(WalError::Closed);
            }
        }
        let header = SegmentHeader {
            sequence: self.next_sequence,
            salt: self.salt,
            bytes: self.segment_bytes,
            block: self.block,
            identity: self.identity.clone(),
        };
        file.write_at(&header.encode(), 0)
            .and_then(|()| file.sync_data())
            .map_err(|e| WalError::io("write the header of", path, e))
    }

    /// Gives a finished file the name of the next segment.
    fn give_name(&mut self, from: &Path, file: Arc<dyn FsFile>) -> Result<Segment, WalError> {
        let sequence = self.next_sequence;
        let path = FileName::Segment(sequence).in_dir(&self.dir);
        if let Err(error) = self.fs.rename(from, &path) {
            // As above: it is tried again with another file.
            self.fs.remove(from).ok();
            return Err(WalError::not_prepared("name the segment", &path, error));
        }
        self.next_sequence += 1;
        let header = SegmentHeader {
            sequence,
            salt: self.salt,
            bytes: self.segment_bytes,
            block: self.block,
            identity: Vec::new(),
        };
        let segment = Segment {
            sequence,
            path,
            file,
            seed: header.seed(),
            bytes: self.segment_bytes,
            block: self.block,
        };
        if let Err(error) = self.sync_dir() {
            self.named = Some(segment);
            return Err(error);
        }
        Ok(segment)
    }

    /// Refuses if something failed for good; makes durable what names the last step left, and removes
    /// what waited for that.
    pub(crate) fn settle(&mut self, pause: Pause<'_>) -> Result<(), WalError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if self.owes_sync {
            self.sync_dir()?;
        }
        self.remove_surplus(pause);
        Ok(())
    }

    fn sync_dir(&mut self) -> Result<(), WalError> {
        if planted(Bug::DirectoryNotSynced) {
            self.owes_sync = false;
            return Ok(());
        }
        let synced = self.fs.sync_dir(&self.dir);
        // A directory that could not be opened was not synced in vain.
        self.owes_sync = synced.as_ref().is_err_and(lacks_descriptors);
        synced.map_err(|e| {
            let error = WalError::io("sync directory", &self.dir, e);
            if self.owes_sync {
                error.into_not_prepared()
            } else {
                self.broken = Some(error.clone());
                error
            }
        })
    }

    /// A failed write or sync of contents: final, unless there was no room. Then the file is given
    /// up, and it had promised nothing to anybody.
    fn judge(&mut self, error: WalError) -> WalError {
        if error.is_no_space() {
            return error.into_not_prepared();
        }
        if !matches!(error, WalError::Closed) {
            self.broken = Some(error.clone());
        }
        error
    }
}

/// Lets pass what is tried again.
fn passes(error: WalError) -> Result<(), WalError> {
    if error.may_pass() { Ok(()) } else { Err(error) }
}
