//! The guard of files in a directory of one machine: mark and data change by one rename, under a lock.
//!
//! ```
//! use ringfence_guard::Fence;
//! use ringfence_guard::files::{Changes, FilesGuard};
//!
//! # let directory = tempfile::tempdir()?;
//! let old: Fence = "bank/balance#8".parse()?;
//! let new: Fence = "bank/balance#9".parse()?;
//! let guard = FilesGuard::new(directory.path(), old.name.clone())?;
//!
//! let changes = Changes::new().put("balance", "100").put("log", "+100");
//! guard.admit(&old, changes)?;
//!
//! // A new holder advances the mark before its first read.
//! guard.advance(&new)?;
//! assert_eq!(guard.read("balance")?.as_deref(), Some(&b"100"[..]));
//!
//! let refused = guard.admit(&old, Changes::new().put("balance", "0")).unwrap_err();
//! assert_eq!(refused.refused().map(|why| why.reason()), Some("STALE_TOKEN"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every call blocks its thread, for the syncs and for other writers: call it from an async program in
//! `tokio::task::spawn_blocking` or its like. [`Sealable`] has a thread for each seal.
//!
//! # How a write is made
//! One directory is guarded by one lease. The guard has a directory `.ringfence` in it, with the file of the
//! mark. A write
//!
//! 1. takes the lock (`flock` of the directory itself), finishes what an earlier process left, and judges the fence;
//! 2. writes each new file into `.ringfence`, and a new file of the mark that lists them, and syncs all;
//! 3. renames the file of the mark over the old one: **here mark and data are committed**; then it syncs
//!    the directory;
//! 4. renames the new files into their places, and syncs the directory.
//!
//! A process that is killed before 3 has changed nothing. Behind 3, the next call of any guard does the rest
//! of 4 from the list, before it looks at anything. The system takes the lock from a process that
//! ends, so no dead writer blocks another one.
//!
//! # Readers
//! Each file is replaced by a rename, so a reader that opens it sees the whole old or the whole new content.
//! [`FilesGuard::read`] also waits for a write that is under way, and finishes one that was cut off. A
//! program that reads without the guard can see some files of one write before the others, and after a crash
//! an old file until the next call of a guard.
//!
//! # What is not guaranteed
//! | what | why | instead |
//! |---|---|---|
//! | directories on NFS, SMB and their like | the server gives the lock of a client that it does not hear to another one, while the first still believes in it; a repeated rename meets its own effect; other machines see old names for seconds | refused when the guard is made ([`FilesError::NetworkFileSystem`]); a guard in a database or in S3 |
//! | FUSE, and disks that several machines mount | what is behind FUSE cannot be seen from here, so it is admitted | the same |
//! | a disk that loses what it has synced | nothing above the disk can tell | |
//! | a file system without a journal (FAT) | a power failure during a rename can lose both names | ext4, XFS, Btrfs, APFS |
//! | writes that pass by the guard | the system carries them out | a user of its own for services with guards, and no write access for others |
//! | a copy of the directory under way | it may have files of two writes | `flock DIRECTORY cp -a DIRECTORY COPY` |
//! | the directory, a link to it or `.ringfence` moved while a write is under way | the write goes where its directory is now, and is acknowledged | `flock DIRECTORY` around the move |
//! | a guarded file that is a mount point or immutable, and `.ringfence` as a mount | the write is committed and cannot be put in its place: all calls fail until that is undone | plain files |
//! | `.ringfence` deleted | the mark is gone | [`FilesGuard::advance_to`] with the lease's newest token before writes are served |
//! | a process that is stopped while it has the lock | the lock stays with it; the others end with [`FilesError::Busy`] | continue or kill it |
//!
//! A directory that is put back from a copy is a restore: mark and data go back together, and
//! [`FilesGuard::advance_to`] comes before writes.
//!
//! # Names
//! 1 to 255 of the characters `A-Z a-z 0-9 . _ ~ : @ + = , -`, without `.` in front: files of the directory
//! itself, no paths. A symbolic link in the place of a file is refused and never followed. On a file
//! system that folds letters, names that differ in these alone are one file.

mod changes;
mod disk;
mod error;
mod place;
mod record;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName};
use ringfence_planted::{Bug, planted};
use rustix::fs::Mode;

use crate::on_thread::on_thread;
use crate::{Admitted, Ceiling, Fence, SealAnswer, Sealable, Sealing};

pub use changes::{CHANGES_MAX, Changes, FILE_MAX};
pub use error::FilesError;

use disk::{Disk, Locked, Share, Steps};
use record::{Operation, Record};

/// How long a call waits for the lock, unless [`FilesGuard::lock_timeout`] says otherwise.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A guard of the files in one directory, bound to one lease. It holds no state of its own and no file
/// open between calls; any number may exist, in any number of processes of one machine.
#[derive(Clone)]
pub struct FilesGuard {
    name: LeaseName,
    directory: PathBuf,
    label: String,
    ceiling: Ceiling,
    lock_timeout: Duration,
    steps: Option<Steps>,
}

impl FilesGuard {
    /// A guard of the files in `directory`, which must exist, bound to `name`. It makes the directory
    /// `.ringfence` in it.
    ///
    /// # Errors
    /// [`FilesError::NetworkFileSystem`], or [`FilesError::Io`].
    pub fn new(directory: impl AsRef<Path>, name: LeaseName) -> Result<Self, FilesError> {
        let directory = std::path::absolute(directory.as_ref()).map_err(|source| {
            let what = "find the guarded directory";
            FilesError::Io { what, source }
        })?;
        Disk::open(&directory, None)?;
        Ok(Self {
            label: format!("files in {}, {name}", directory.display()),
            name,
            directory,
            ceiling: Ceiling::Clock,
            lock_timeout: LOCK_TIMEOUT,
            steps: None,
        })
    }

    /// Sets the greatest token that raises the mark; [`Ceiling::Clock`] unless set otherwise.
    #[must_use]
    pub const fn ceiling(mut self, ceiling: Ceiling) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// Sets how long a call waits for other processes and threads; [`LOCK_TIMEOUT`] unless set otherwise.
    #[must_use]
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Calls `steps` before each operation of the file system, with its name: for tests, which fail it or
    /// end their process there.
    #[doc(hidden)]
    #[must_use]
    pub fn steps(
        mut self,
        steps: impl Fn(&'static str) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.steps = Some(Arc::new(steps));
        self
    }

    /// The lease this guard is bound to.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// The guarded directory, as an absolute path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Admits the fence if no greater token was admitted before, and makes `changes` together with the
    /// mark. Durable once it has returned.
    ///
    /// # Errors
    /// [`FilesError::Unknown`]: whether it was written is not known. After every other error nothing was;
    /// after [`Refused::StaleToken`](crate::Refused::StaleToken) the lease is lost.
    pub fn admit(&self, fence: &Fence, changes: Changes) -> Result<Admitted, FilesError> {
        fence.check_lease(&self.name)?;
        changes.check()?;
        if planted(Bug::FilesJudgedBeforeTheLock) {
            self.judge(fence, self.mark()?)?;
        }
        let locked = self.lock(Share::None)?;
        let last = self.recover(&locked.disk)?;
        if !planted(Bug::FilesJudgedBeforeTheLock) {
            self.judge(fence, last.as_ref().map(|last| last.mark))?;
        }
        self.write(&locked, last.as_ref(), fence.token, changes)?;
        Ok(Admitted::new(fence.token))
    }

    /// Tells the guard that `fence` is the grant in force: once it has returned, every older token
    /// is refused. A new holder calls it **before its first read** of what is guarded. Advancing
    /// twice changes nothing.
    ///
    /// # Errors
    /// As [`FilesGuard::admit`]; after [`FilesError::Unknown`] advance again.
    pub fn advance(&self, fence: &Fence) -> Result<Admitted, FilesError> {
        self.admit(fence, Changes::new())
    }

    /// Raises the mark to `floor` if it is lower, and repairs a damaged one; never lowers it. After a
    /// restore of the directory, call it with the lease's newest token before writes are served. The
    /// [`Ceiling`] does not judge it.
    ///
    /// # Errors
    /// As [`FilesGuard::admit`]; never a refusal.
    pub fn advance_to(&self, floor: FencingToken) -> Result<(), FilesError> {
        let locked = self.lock(Share::None)?;
        let last = match self.recover(&locked.disk) {
            Err(FilesError::DamagedMark { .. }) => None,
            recovered => recovered?,
        };
        match &last {
            // A process that ended right behind its rename has not synced the mark.
            Some(last) if last.mark >= floor && !planted(Bug::FloorLowersMark) => {
                let disk = &locked.disk;
                disk.sync(&disk.control, "sync the directory .ringfence")
            }
            _ => self.write(&locked, last.as_ref(), floor, Changes::new()),
        }
    }

    /// The content of a file; `None` if there is none. A holder that builds a write on it advances before.
    ///
    /// # Errors
    /// [`FilesError::InvalidName`], [`FilesError::NotAFile`], [`FilesError::TooLarge`],
    /// [`FilesError::Busy`], [`FilesError::Io`], or what is wrong with the mark.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FilesError> {
        changes::check_name(name)?;
        self.look(|disk| disk.file(name))
    }

    /// The greatest token admitted so far. Advice for people: only a write decides.
    ///
    /// # Errors
    /// [`FilesError::DamagedMark`], [`FilesError::OtherVersion`], [`FilesError::OtherLease`],
    /// [`FilesError::Busy`] or [`FilesError::Io`].
    pub fn mark(&self) -> Result<Option<FencingToken>, FilesError> {
        Ok(self.look(|disk| self.last(disk))?.map(|last| last.mark))
    }

    /// Looks at the directory when no write is half done.
    fn look<T>(&self, look: impl Fn(&Disk) -> Result<T, FilesError>) -> Result<T, FilesError> {
        let shared = self.lock(Share::Readers)?;
        if shared.disk.staged()?.is_empty() {
            return look(&shared.disk);
        }
        drop(shared);
        let alone = self.lock(Share::None)?;
        self.recover(&alone.disk)?;
        look(&alone.disk)
    }

    fn lock(&self, share: Share) -> Result<Locked, FilesError> {
        let disk = Disk::open(&self.directory, self.steps.clone())?;
        let locked = disk.lock(share, self.lock_timeout)?;
        locked.ok_or_else(|| FilesError::Busy {
            directory: self.directory.clone(),
            waited: self.lock_timeout,
        })
    }

    fn judge(&self, fence: &Fence, mark: Option<FencingToken>) -> Result<(), FilesError> {
        fence.judge(&self.name, mark)?;
        self.ceiling.judge(fence, mark)?;
        Ok(())
    }

    /// The last committed write.
    fn last(&self, disk: &Disk) -> Result<Option<Record>, FilesError> {
        let Some(text) = disk.mark()? else {
            return Ok(None);
        };
        let record = Record::decode(&text, &self.name);
        let unreadable = |why| FilesError::unreadable(self.directory.clone(), &self.name, why);
        record.map(Some).map_err(unreadable)
    }

    /// The last committed write, which is finished first.
    fn recover(&self, disk: &Disk) -> Result<Option<Record>, FilesError> {
        let last = self.last(disk)?;
        let staged = disk.staged()?;
        if !staged.is_empty() {
            // Its process may have ended before the mark was synced; data must not outlive it.
            disk.sync(&disk.control, "sync the directory .ringfence")?;
            finish(disk, last.as_ref(), staged)?;
        }
        Ok(last)
    }

    /// Commits `mark` and `changes` behind the last write, and finishes that.
    fn write(
        &self,
        locked: &Locked,
        last: Option<&Record>,
        mark: FencingToken,
        changes: Changes,
    ) -> Result<(), FilesError> {
        let disk = &locked.disk;
        let mut record = Record {
            mark,
            revision: last.map_or(0, |last| last.revision).saturating_add(1),
            operations: Vec::new(),
        };
        // Where the last process ended behind its renames they are not on the disk yet, nor is `.ringfence`
        // if it was just made.
        if last.is_none_or(|last| !last.operations.is_empty()) {
            disk.sync(&disk.data, "sync the guarded directory")?;
        }
        if let Err(error) = self.stage(disk, &mut record, changes) {
            // What stays of it is in no list, and the next write removes it.
            for staged in disk.staged().unwrap_or_default() {
                disk.unstage(&staged).ok();
            }
            return Err(error);
        }
        // From here on the write may be there, and is for the next call to finish.
        let finished = disk
            .commit()
            .and_then(|()| disk.sync(&disk.control, "sync the mark"))
            .and_then(|()| finish(disk, Some(&record), disk.staged()?));
        finished.map_err(FilesError::into_unknown)
    }

    /// Writes everything that the commit makes valid.
    fn stage(&self, disk: &Disk, record: &mut Record, changes: Changes) -> Result<(), FilesError> {
        for (at, (name, content)) in changes.files.into_iter().enumerate() {
            let there = disk.look(&name)?;
            let mode = there.map(|there| Mode::from_raw_mode(there.st_mode & 0o777));
            let staged = record.staged(at);
            disk.write(&staged, content.as_deref().unwrap_or(&[]), mode)?;
            record.operations.push(match content {
                Some(_) => Operation::Put(name),
                None => Operation::Delete(name),
            });
        }
        let text = record.encode(&self.name);
        disk.write(disk::NEXT_MARK, text.as_bytes(), None)?;
        disk.sync(&disk.control, "sync the new files")
    }
}

/// Carries out what a committed write lists and is still `staged`, and removes what no write lists.
fn finish(disk: &Disk, last: Option<&Record>, staged: Vec<String>) -> Result<(), FilesError> {
    let mut left = staged;
    let operations = last.iter().flat_map(|last| &last.operations);
    let mut touched = false;
    for (at, operation) in operations.enumerate() {
        let staged = last.map(|last| last.staged(at));
        let Some(at) = left.iter().position(|left| Some(left) == staged.as_ref()) else {
            continue;
        };
        touched = true;
        match operation {
            Operation::Put(name) => disk.put(&left.swap_remove(at), name)?,
            Operation::Delete(name) => disk.delete(name)?,
        }
    }
    if touched {
        disk.sync(&disk.data, "sync the guarded directory")?;
    }
    // What stands for a deletion goes when that is on disk.
    left.iter().try_for_each(|left| disk.unstage(left))
}

/// A directory in memory, or in an overlay, counts as unsealed.
impl Sealable for FilesGuard {
    fn label(&self) -> &str {
        &self.label
    }

    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a> {
        let (guard, fence) = (self.clone(), fence.clone());
        Box::pin(async move {
            let answer = on_thread(move || guard.advance_and_look(&fence)).await;
            answer.unwrap_or_else(|| SealAnswer::Failed {
                why: "its thread ended without an answer".into(),
            })
        })
    }
}

impl FilesGuard {
    fn advance_and_look(&self, fence: &Fence) -> SealAnswer {
        let is_lost = self.advance(fence).and_then(|_| {
            let disk = Disk::open(&self.directory, None)?;
            place::is_lost_with_power(&disk.data)
        });
        match is_lost {
            Ok(true) => SealAnswer::NotDurable {
                why: "the directory is in memory, or in an overlay that may be; use one on a disk"
                    .into(),
            },
            other => other.into(),
        }
    }
}

impl fmt::Debug for FilesGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesGuard")
            .field("name", &self.name)
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}
