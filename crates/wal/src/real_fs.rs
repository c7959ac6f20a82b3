//! The operating system's files.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::fs::{Fs, FsFile, FsLock};
use crate::system;

/// How often a lock that another process has is tried, and how long it is waited in between: half a
/// second in all.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

struct RealFile(File);

impl Fs for RealFs {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        Ok(Arc::new(RealFile(
            OpenOptions::new().read(true).write(true).open(path)?,
        )))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        std::fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        system::sync_names(&File::open(dir)?)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn has_dir(&self, dir: &Path) -> bool {
        dir.is_dir()
    }

    fn block_bytes(&self, dir: &Path) -> u64 {
        let page = rustix::param::page_size() as u64;
        page.max(system::physical_sector(dir).unwrap_or(0))
    }

    fn lock(&self, path: &Path) -> io::Result<FsLock> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // It is written to, maybe by root in a directory of an account that may write less: a link would
        // lead to any file.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            &mut options,
            rustix::fs::OFlags::NOFOLLOW.bits().cast_signed(),
        );
        let mut file = options.open(path)?;
        if !lock_soon(&file)? {
            let mut pid = String::new();
            // Who holds it is a courtesy: an unreadable file changes nothing.
            let known = file.read_to_string(&mut pid).is_ok() && !pid.trim().is_empty();
            return Ok(FsLock::Busy(if known {
                format!("process {}", pid.trim())
            } else {
                "another process".to_owned()
            }));
        }
        // A courtesy to the process that is refused; a full disk must not keep the log from
        // opening.
        let told = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        drop(told);
        Ok(FsLock::Held(Box::new(file)))
    }
}

/// Locks the file; false if another process keeps it.
///
/// A lock is shared with every process that its holder forks, until that one executes its program:
/// who lets go of a directory while it starts another program, as sled does, lets go a moment later.
fn lock_soon(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => wait_for_lock(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing can be done with the directory before, and nothing notifies when it is let go"
)]
fn wait_for_lock() {
    std::thread::sleep(LOCK_PAUSE);
}

impl FsFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        system::sync_content(&self.0)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn drop_cache(&self) -> io::Result<()> {
        system::drop_cache(&self.0)
    }
}
