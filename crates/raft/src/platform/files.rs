//! Files as readers and writers: what is written and read from one end to the other.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringfence_planted::{Bug, planted};
use ringfence_wal::{Fs, FsFile, lacks_descriptors};

/// Makes a directory and those above it, and makes their names durable. A directory that was there
/// already may be one that a process made and did not live to sync, so its name is synced, too.
pub(crate) fn make_dir_durable(files: &dyn Fs, dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir
        .ancestors()
        .skip(1)
        .filter(|above| !above.as_os_str().is_empty())
        .take_while(|above| !files.has_dir(above))
        .collect();
    files.make_dir(dir)?;
    if planted(Bug::NewDirectoryNotSynced) {
        return Ok(());
    }
    for made in std::iter::once(dir).chain(missing) {
        let parent = match made.parent() {
            None => continue,
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
        };
        match files.sync_dir(parent) {
            // A process that may not read the directory did not make one in it.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// How often what could not be opened is tried, and how long it is waited in between: ten seconds in
/// all.
const OPEN_TRIES: u32 = 50;
/// See [`OPEN_TRIES`].
const OPEN_AGAIN: Duration = Duration::from_millis(200);

/// Repeats a step that opens a file for as long as there are no descriptors left, within limits.
/// Nothing was touched then, so it says nothing of the disk; it blocks meanwhile.
pub(crate) fn patiently<T>(step: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..OPEN_TRIES {
        match step() {
            Err(error) if lacks_descriptors(&error) => wait_for_descriptors(),
            done => return done,
        }
    }
    step()
}

#[expect(
    clippy::disallowed_methods,
    reason = "on a thread that may block, and nothing notifies when a descriptor is free"
)]
fn wait_for_descriptors() {
    std::thread::sleep(OPEN_AGAIN);
}

/// Creates a file; one that lies there from an attempt that a crash ended goes first.
pub(crate) fn create_anew(files: &dyn Fs, path: &Path) -> io::Result<Arc<dyn FsFile>> {
    remove_if_there(files, path)?;
    files.create(path)
}

/// Removes a file, or finds that it is gone.
pub(crate) fn remove_if_there(files: &dyn Fs, path: &Path) -> io::Result<()> {
    match files.remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Goes through a file from its beginning.
pub(crate) struct Through {
    file: Arc<dyn FsFile>,
    at: u64,
    /// How long a file that is read was when it was opened.
    length: u64,
}

impl Through {
    pub(crate) fn read(files: &dyn Fs, path: &Path) -> io::Result<Self> {
        let file = files.open(path)?;
        let length = file.len()?;
        let at = 0;
        Ok(Self { file, at, length })
    }

    pub(crate) fn write(files: &dyn Fs, path: &Path) -> io::Result<Self> {
        let file = create_anew(files, path)?;
        let (at, length) = (0, 0);
        Ok(Self { file, at, length })
    }

    /// Makes durable what was written.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Read for Through {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        self.file.read_at(&mut buffer[..count], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Write for Through {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
