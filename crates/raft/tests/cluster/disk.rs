//! A real disk that can be made to hang: whatever is to be made durable waits.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use ringfence_wal::{Fs, FsFile, FsLock, RealFs};

/// Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    hangs: Mutex<bool>,
    moved: Condvar,
}

impl Gate {
    fn pass(&self) {
        let hangs = self.hangs.lock().unwrap();
        drop(self.moved.wait_while(hangs, |hangs| *hangs).unwrap());
    }
}

impl Disk {
    /// From now on nothing becomes durable.
    pub(crate) fn hang(&self) {
        *self.gate.hangs.lock().unwrap() = true;
    }

    /// Everything that waited becomes durable.
    pub(crate) fn go_on(&self) {
        *self.gate.hangs.lock().unwrap() = false;
        self.gate.moved.notify_all();
    }

    fn file(&self, path: &Path, file: Arc<dyn FsFile>) -> Arc<dyn FsFile> {
        // What hangs is the log: its files come and go with it.
        if !path.components().any(|part| part.as_os_str() == "wal") {
            return file;
        }
        let gate = self.gate.clone();
        Arc::new(File { file, gate })
    }
}

impl Fs for Disk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        Ok(self.file(path, RealFs.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        Ok(self.file(path, RealFs.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealFs.sync_dir(dir)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        RealFs.make_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        RealFs.remove_dir(dir)
    }

    fn has_dir(&self, dir: &Path) -> bool {
        RealFs.has_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<FsLock> {
        RealFs.lock(path)
    }
}

struct File {
    file: Arc<dyn FsFile>,
    gate: Arc<Gate>,
}

impl FsFile for File {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass();
        self.file.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.file.drop_cache()
    }
}
