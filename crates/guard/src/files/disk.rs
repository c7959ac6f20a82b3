//! The operations of the file system, each behind a step at which a test may fail or end the process.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, mkdirat, open,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::FilesError;
use super::changes::check_size;

/// The directory of the guard, inside the guarded one.
const CONTROL: &str = ".ringfence";
pub(super) const MARK: &str = "mark";
pub(super) const NEXT_MARK: &str = "mark.new";
/// What the names of staged files begin with.
pub(super) const STAGED: &str = "new-";

/// The most bytes of the file of the mark: more than a thousand names have.
const RECORD_MAX: u64 = 1 << 20;

/// The first pause of a call that waits for the lock, and the longest one; it doubles in between.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);

/// Is called before each operation, with its name.
pub(super) type Steps = Arc<dyn Fn(&'static str) -> io::Result<()> + Send + Sync>;

/// Who may have the lock besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Other readers.
    Readers,
    /// No other process or thread.
    None,
}

/// An open guarded directory.
pub(super) struct Disk {
    path: PathBuf,
    pub(super) data: OwnedFd,
    pub(super) control: OwnedFd,
    steps: Option<Steps>,
}

/// The same with the lock, which ends with this value and with the process.
pub(super) struct Locked {
    pub(super) disk: Disk,
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing is not enough where a child was forked meanwhile: the lock would be its own, too.
        flock(&self.disk.data, FlockOperation::Unlock).ok();
    }
}

pub(super) fn failed(what: &'static str) -> impl FnOnce(Errno) -> FilesError {
    move |errno| io_failed(what)(errno.into())
}

fn io_failed(what: &'static str) -> impl FnOnce(io::Error) -> FilesError {
    move |source| FilesError::Io { what, source }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

impl Disk {
    /// Opens the directory, and makes that of the guard in it.
    pub(super) fn open(directory: &Path, steps: Option<Steps>) -> Result<Self, FilesError> {
        const OPEN: &str = "open the guarded directory";
        let data = open(directory, directory_flags(), Mode::empty()).map_err(|errno| {
            // The one failure for which a program that guards several directories has to know which.
            let error = io::Error::from(errno);
            let named = format!("{}: {error}", directory.display());
            io_failed(OPEN)(io::Error::new(error.kind(), named))
        })?;
        super::place::refuse_network(&data, directory)?;
        let flags = directory_flags() | OFlags::NOFOLLOW;
        let control = match openat(&data, CONTROL, flags, Mode::empty()) {
            Ok(control) => control,
            Err(Errno::NOENT) => {
                const MAKE: &str = "make the directory .ringfence";
                match mkdirat(&data, CONTROL, Mode::from_raw_mode(0o777)) {
                    // Another process was faster.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed(MAKE)(errno)),
                }
                rustix::fs::fsync(&data).map_err(failed(MAKE))?;
                openat(&data, CONTROL, flags, Mode::empty()).map_err(failed(MAKE))?
            }
            Err(errno) => return Err(failed("open the directory .ringfence")(errno)),
        };
        let on_one = |a: &Stat, b: &Stat| a.st_dev == b.st_dev;
        let (of_data, of_control) = (stat_of(&data)?, stat_of(&control)?);
        if !on_one(&of_data, &of_control) {
            let why = ".ringfence is another file system; a rename from there is not one step";
            return Err(io_failed(OPEN)(io::Error::other(why)));
        }
        Ok(Self {
            path: directory.to_owned(),
            data,
            control,
            steps,
        })
    }

    /// Whether the path still leads to this directory, and its `.ringfence` to the guard's: a lock of one
    /// that was moved away excludes no other process.
    fn is_in_place(&self) -> Result<bool, FilesError> {
        let is = |named: Result<Stat, Errno>, own: &OwnedFd| match named {
            Ok(named) => {
                let own = stat_of(own)?;
                Ok((named.st_dev, named.st_ino) == (own.st_dev, own.st_ino))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(failed("look at the guarded directory")(errno)),
        };
        let control = statat(&self.data, CONTROL, AtFlags::SYMLINK_NOFOLLOW);
        Ok(is(rustix::fs::stat(&self.path), &self.data)? && is(control, &self.control)?)
    }

    fn step(&self, what: &'static str) -> Result<(), FilesError> {
        match &self.steps {
            Some(steps) => steps(what).map_err(io_failed(what)),
            None => Ok(()),
        }
    }

    /// Waits for the lock, for `patience` at most. `None`: it was not free.
    ///
    /// It is that of the guarded directory itself, which cannot be deleted without the data.
    pub(super) fn lock(
        mut self,
        share: Share,
        patience: Duration,
    ) -> Result<Option<Locked>, FilesError> {
        const LOCKS: &str = "lock the directory";
        self.step(LOCKS)?;
        let operation = match share {
            Share::Readers => FlockOperation::NonBlockingLockShared,
            Share::None => FlockOperation::NonBlockingLockExclusive,
        };
        let (mut waited, mut pause) = (Duration::ZERO, PAUSE_MIN);
        loop {
            match flock(&self.data, operation) {
                Ok(()) => {
                    let locked = Locked { disk: self };
                    if locked.disk.is_in_place()? {
                        return Ok(Some(locked));
                    }
                    let (path, steps) = (locked.disk.path.clone(), locked.disk.steps.clone());
                    drop(locked);
                    self = Self::open(&path, steps)?;
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(failed(LOCKS)(errno)),
            }
            if waited >= patience {
                return Ok(None);
            }
            wait(pause);
            waited += pause;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The file of the mark, if there is one.
    pub(super) fn mark(&self) -> Result<Option<Vec<u8>>, FilesError> {
        read(&self.control, MARK, RECORD_MAX, "read the mark")
    }

    /// A guarded file, if there is one.
    pub(super) fn file(&self, name: &str) -> Result<Option<Vec<u8>>, FilesError> {
        if let Some(stat) = self.look(name)? {
            check_size(name, stat.st_size.try_into().unwrap_or(u64::MAX))?;
        }
        read(&self.data, name, super::FILE_MAX, "read a guarded file")
    }

    /// What has the name of a guarded file, if it is one.
    pub(super) fn look(&self, name: &str) -> Result<Option<Stat>, FilesError> {
        match statat(&self.data, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Ok(Some(stat))
            }
            Ok(_) => Err(FilesError::NotAFile {
                name: name.to_owned(),
            }),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("look at a guarded file")(errno)),
        }
    }

    /// Writes a file of the guard's own directory, and syncs it. `mode`: its permissions, else those that
    /// the process gives to new files.
    pub(super) fn write(
        &self,
        name: &str,
        content: &[u8],
        mode: Option<Mode>,
    ) -> Result<(), FilesError> {
        const CREATE: &str = "create a new file";
        const WRITE: &str = "write a new file";
        const SYNC: &str = "sync a new file";
        // What a killed process left may have another name besides, or be no file.
        self.remove(&self.control, name, CREATE)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // No other process opens a private file before it has its permissions.
        let first = Mode::from_raw_mode(if mode.is_some() { 0o600 } else { 0o666 });
        let created = openat(&self.control, name, flags, first);
        let mut file = File::from(created.map_err(failed(CREATE))?);
        if let Some(mode) = mode {
            rustix::fs::fchmod(&file, mode).map_err(failed(CREATE))?;
        }
        self.step(WRITE)?;
        file.write_all(content).map_err(io_failed(WRITE))?;
        self.step(SYNC)?;
        file.sync_all().map_err(io_failed(SYNC))
    }

    /// Makes the names in a directory outlive a power failure.
    pub(super) fn sync(&self, directory: &OwnedFd, what: &'static str) -> Result<(), FilesError> {
        self.step(what)?;
        // `sync_all` asks macOS for more than `fsync` does.
        let directory = directory.try_clone().map_err(io_failed(what))?;
        File::from(directory).sync_all().map_err(io_failed(what))
    }

    /// The step behind which a write is committed.
    pub(super) fn commit(&self) -> Result<(), FilesError> {
        const COMMIT: &str = "rename the mark";
        self.step(COMMIT)?;
        renameat(&self.control, NEXT_MARK, &self.control, MARK).map_err(failed(COMMIT))
    }

    /// Puts a staged file in its place.
    pub(super) fn put(&self, staged: &str, name: &str) -> Result<(), FilesError> {
        const PUT: &str = "rename a file into its place";
        self.step(PUT)?;
        renameat(&self.control, staged, &self.data, name).map_err(failed(PUT))
    }

    /// Deletes a guarded file, if it is there.
    pub(super) fn delete(&self, name: &str) -> Result<(), FilesError> {
        self.remove(&self.data, name, "delete a guarded file")
    }

    /// Removes a staged file.
    pub(super) fn unstage(&self, staged: &str) -> Result<(), FilesError> {
        self.remove(&self.control, staged, "remove a staged file")
    }

    fn remove(
        &self,
        directory: &OwnedFd,
        name: &str,
        what: &'static str,
    ) -> Result<(), FilesError> {
        self.step(what)?;
        match unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(what)(errno)),
        }
    }

    /// The names of all staged files.
    pub(super) fn staged(&self) -> Result<Vec<String>, FilesError> {
        const LIST: &str = "list the directory .ringfence";
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.control).map_err(failed(LIST))? {
            let entry = entry.map_err(failed(LIST))?;
            let name = entry.file_name().to_string_lossy();
            if name.starts_with(STAGED) {
                names.push(name.into_owned());
            }
        }
        Ok(names)
    }
}

fn stat_of(file: &OwnedFd) -> Result<Stat, FilesError> {
    fstat(file).map_err(failed("look at the guarded directory"))
}

fn read(
    directory: &OwnedFd,
    name: &str,
    max: u64,
    what: &'static str,
) -> Result<Option<Vec<u8>>, FilesError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed(what)(errno)),
    };
    let mut content = Vec::new();
    let read = file.take(max).read_to_end(&mut content);
    read.map_err(io_failed(what))?;
    Ok(Some(content))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the calls of this guard block; the async ones have a thread of their own"
)]
fn wait(pause: Duration) {
    thread::sleep(pause);
}
