//! A real disk that can be made to hang, so that whatever is to be made durable waits, and to be
//! full, so that no file of a folder can grow.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use ringfence_wal::{Fs, FsFile, FsLock, RealFs};

/// Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    gate: Arc<Gate>,
    full: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Default)]
struct Gate {
    hangs: Mutex<BTreeSet<String>>,
    moved: Condvar,
}

impl Gate {
    fn pass(&self, folder: &str) {
        let hangs = self.hangs.lock().unwrap();
        let passed = self.moved.wait_while(hangs, |hangs| hangs.contains(folder));
        drop(passed.unwrap());
    }
}

impl Disk {
    /// From now on nothing of the log becomes durable.
    pub(crate) fn hang(&self) {
        self.hang_in("wal");
    }

    /// From now on nothing in a folder of this name becomes durable.
    pub(crate) fn hang_in(&self, folder: &str) {
        self.gate.hangs.lock().unwrap().insert(folder.to_owned());
    }

    /// Everything that waited becomes durable.
    pub(crate) fn go_on(&self) {
        self.gate.hangs.lock().unwrap().clear();
        self.gate.moved.notify_all();
    }

    /// From now on no file in a folder of this name can grow, or all can again.
    pub(crate) fn fill(&self, folder: &str, full: bool) {
        let mut folders = self.full.lock().unwrap();
        if full {
            folders.insert(folder.to_owned());
        } else {
            folders.remove(folder);
        }
    }

    fn file(&self, path: &Path, file: Arc<dyn FsFile>) -> Arc<dyn FsFile> {
        let folder = path.parent().and_then(Path::file_name);
        let folder = folder.unwrap_or_default().to_string_lossy().into_owned();
        let disk = self.clone();
        Arc::new(File { file, folder, disk })
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
    folder: String,
    disk: Disk,
}

impl FsFile for File {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let grows = offset + bytes.len() as u64 > self.file.len()?;
        if grows && self.disk.full.lock().unwrap().contains(&self.folder) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.gate.pass(&self.folder);
        self.file.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.file.drop_cache()
    }
}
