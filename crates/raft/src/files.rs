//! Files as readers and writers: what is written and read from one end to the other.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use ringfence_wal::{Fs, FsFile};

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
