//! The simulated file system as its users see it.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::crash::Crash;
use super::disk::Disk;
use crate::fs::{Fs, FsFile, FsLock};

/// An error planted for later. Operations are counted from 0 since the last crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The n-th write fails.
    Write(u64, ErrorKind),
    /// The n-th sync of content fails, and what it was to write is lost, though still readable.
    Sync(u64, ErrorKind),
    /// The n-th change of any kind, and everything after it, fails: the process is dead. The
    /// change itself was begun, so that it may or may not survive [`SimFs::crash`].
    Stop(u64),
}

/// A file system in memory; clones share it, [`SimFs::fork`] copies it.
#[derive(Debug, Clone, Default)]
pub struct SimFs {
    world: Arc<Mutex<World>>,
    /// Set if it is one process's: it does nothing any more once that process has died.
    process: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct World {
    disk: Disk,
    faults: Vec<Fault>,
    changes: u64,
    writes: u64,
    syncs: u64,
    stopped: bool,
    locks: BTreeSet<PathBuf>,
    /// Counts crashes: files and locks of an earlier life are dead.
    life: u64,
}

impl SimFs {
    /// Returns an empty file system: it has a root directory and nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a file system that durably has the directory `dir`, and those above it.
    #[must_use]
    pub fn with_dir(dir: &Path) -> Self {
        let fs = Self::new();
        {
            let mut world = fs.world();
            for missing in world.missing(dir) {
                world.disk.make_dir(&missing);
            }
            world.disk.settle_names();
        }
        fs
    }

    /// Returns an independent copy, without locks, of what is there now.
    #[must_use]
    pub fn fork(&self) -> Self {
        let world = World {
            locks: BTreeSet::new(),
            ..self.world().clone()
        };
        Self {
            world: Arc::new(Mutex::new(world)),
            process: None,
        }
    }

    /// The same files as a process sees that begins now: behind the next crash, which it does not
    /// outlive, everything that is asked for through this is refused.
    #[must_use]
    pub fn of_process(&self) -> Self {
        let life = self.world().life;
        Self {
            world: Arc::clone(&self.world),
            process: Some(life),
        }
    }

    /// Crashes and starts again: open files and locks are dead, faults are forgotten.
    pub fn crash(&self, crash: Crash) {
        let mut world = self.world();
        world.disk.crash(crash);
        *world = World {
            disk: std::mem::take(&mut world.disk),
            life: world.life + 1,
            ..World::default()
        };
    }

    /// Plants a fault; it takes effect once, at the first operation that it matches.
    pub fn plant(&self, fault: Fault) {
        self.world().faults.push(fault);
    }

    /// Limits the sum of the lengths of all files, in bytes, or lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.set_room(Path::new("/"), bytes);
    }

    /// Limits the sum of the lengths of the files below `dir`, in bytes, or lifts the limit.
    /// Files that are longer stay as they are; they only cannot grow.
    pub fn set_room(&self, dir: &Path, bytes: Option<u64>) {
        let rooms = &mut self.world().disk.rooms;
        match bytes {
            Some(bytes) => rooms.insert(dir.to_owned(), bytes),
            None => rooms.remove(dir),
        };
    }

    /// Durably removes every file and directory below `dir` and leaves `dir` itself, as a person
    /// would who empties a directory. Not a change that [`Fault::Stop`] counts.
    pub fn empty_dir(&self, dir: &Path) {
        let mut world = self.world();
        let below = |path: &&PathBuf| path.starts_with(dir) && path.as_path() != dir;
        let names = &world.disk.names;
        let files: Vec<PathBuf> = names.files.keys().filter(below).cloned().collect();
        let dirs: Vec<PathBuf> = names.dirs.iter().filter(below).cloned().collect();
        files.iter().for_each(|path| world.disk.unlink(path));
        dirs.iter()
            .rev()
            .for_each(|path| world.disk.remove_dir(path));
        world.disk.settle_names();
    }

    /// Returns how many changes were made since the last crash: what [`Fault::Stop`] counts.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.world().changes
    }

    /// Returns how many syncs of content were asked for since the last crash.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.world().syncs
    }

    /// Returns how many writes were asked for since the last crash.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.world().writes
    }

    /// Returns the sum of the lengths of all files, in bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.world().disk.used_below(Path::new("/"))
    }

    /// Returns the paths of all files, ascending.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.world().disk.names.files.keys().cloned().collect()
    }

    /// Returns the paths of all directories but the root, ascending.
    #[must_use]
    pub fn dirs(&self) -> Vec<PathBuf> {
        self.world().disk.names.dirs.iter().cloned().collect()
    }

    /// Returns a file's content as a process sees it; `None` if there is no such file.
    #[must_use]
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let world = self.world();
        world
            .disk
            .names
            .files
            .get(path)
            .map(|inode| world.disk.inodes[*inode].seen.clone())
    }

    /// Flips the bits of `mask` in one byte; false if there is no such byte.
    #[must_use]
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) -> bool {
        let mut world = self.world();
        let Some(&inode) = world.disk.names.files.get(path) else {
            return false;
        };
        let there = offset < world.disk.inodes[inode].seen.len() as u64;
        if there {
            world.disk.inodes[inode].flip(offset as usize, mask);
        }
        there
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a living process works on.
    fn alive(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.world();
        if self.process.is_some_and(|process| process != world.life) {
            return Err(io::Error::other("the process that asks has died"));
        }
        world.alive()?;
        Ok(world)
    }

    fn file(&self, world: &World, inode: usize) -> Arc<dyn FsFile> {
        Arc::new(SimFile {
            fs: self.clone(),
            inode,
            life: world.life,
        })
    }
}

impl World {
    /// Refuses whatever a dead process asks for.
    fn alive(&self) -> io::Result<()> {
        if self.stopped {
            Err(io::Error::other("the process was stopped"))
        } else {
            Ok(())
        }
    }

    /// Makes one change, or the part of it that a planted stop lets through.
    fn change<T>(&mut self, make: impl FnOnce(&mut Disk) -> T) -> io::Result<T> {
        self.alive()?;
        self.stopped = self.faults.contains(&Fault::Stop(self.changes));
        self.changes += 1;
        let made = make(&mut self.disk);
        self.alive().map(|()| made)
    }

    fn inode(&self, path: &Path) -> io::Result<usize> {
        self.disk
            .names
            .files
            .get(path)
            .copied()
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// The directories from the root to `dir` that are not there, the highest first.
    fn missing(&self, dir: &Path) -> Vec<PathBuf> {
        let above = dir.ancestors().filter(|dir| !self.disk.names.has_dir(dir));
        let mut missing: Vec<PathBuf> = above.map(Path::to_owned).collect();
        missing.reverse();
        missing
    }

    /// Refuses what needs the directory that `path` stands in, if that is not there.
    fn parent_of(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) if self.disk.names.has_dir(parent) => Ok(()),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    fn dir(&self, path: &Path) -> io::Result<()> {
        match self.disk.names.has_dir(path) {
            true => Ok(()),
            false => Err(ErrorKind::NotFound.into()),
        }
    }

    fn planted(&self, find: impl Fn(&Fault) -> Option<ErrorKind>) -> io::Result<()> {
        self.faults
            .iter()
            .find_map(find)
            .map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Fs for SimFs {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        let mut world = self.alive()?;
        if world.disk.names.files.contains_key(path) || world.disk.names.has_dir(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        world.parent_of(path)?;
        let inode = world.change(|disk| disk.create(path))?;
        Ok(self.file(&world, inode))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        let world = self.alive()?;
        let inode = world.inode(path)?;
        Ok(self.file(&world, inode))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        world.inode(from)?;
        world.parent_of(to)?;
        world.change(|disk| disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        world.inode(path)?;
        world.change(|disk| disk.unlink(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let world = self.alive()?;
        world.dir(dir)?;
        let names = &world.disk.names;
        let all = names.files.keys().chain(&names.dirs);
        let inside = all.filter(|path| path.parent() == Some(dir));
        let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
        Ok(inside.filter_map(name).collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        world.dir(dir)?;
        // A sync that the stop cut off may have written any part: that is for the crash to draw.
        if world.faults.contains(&Fault::Stop(world.changes)) {
            return world.change(|_| ());
        }
        world.change(|disk| disk.sync_dir(dir))
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        for missing in world.missing(dir) {
            if world.disk.names.files.contains_key(&missing) {
                return Err(ErrorKind::NotADirectory.into());
            }
            world.change(|disk| disk.make_dir(&missing))?;
        }
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        let names = &world.disk.names;
        let files: Vec<PathBuf> = names.files.keys().cloned().collect();
        let dirs: Vec<PathBuf> = names.dirs.iter().rev().cloned().collect();
        for path in files.iter().filter(|path| path.starts_with(dir)) {
            world.change(|disk| disk.unlink(path))?;
        }
        for path in dirs.iter().filter(|path| path.starts_with(dir)) {
            world.change(|disk| disk.remove_dir(path))?;
        }
        Ok(())
    }

    fn has_dir(&self, dir: &Path) -> bool {
        self.world().disk.names.has_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<FsLock> {
        let mut world = self.alive()?;
        world.parent_of(path)?;
        if world.locks.contains(path) {
            return Ok(FsLock::Busy("another opener".to_owned()));
        }
        if !world.disk.names.files.contains_key(path) {
            let _inode = world.change(|disk| disk.create(path))?;
        }
        world.locks.insert(path.to_owned());
        let held = Held {
            fs: self.clone(),
            path: path.to_owned(),
            life: world.life,
        };
        Ok(FsLock::Held(Box::new(held)))
    }
}

struct Held {
    fs: SimFs,
    path: PathBuf,
    life: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut world = self.fs.world();
        if world.life == self.life {
            world.locks.remove(&self.path);
        }
    }
}

struct SimFile {
    fs: SimFs,
    inode: usize,
    life: u64,
}

impl SimFile {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.fs.world();
        if world.life != self.life {
            return Err(io::Error::other("the file was opened before a crash"));
        }
        world.alive()?;
        Ok(world)
    }
}

impl FsFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.world()?.disk.inodes[self.inode].seen.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let world = self.world()?;
        let offset = offset as usize;
        let wanted = world.disk.inodes[self.inode]
            .seen
            .get(offset..offset + buffer.len());
        buffer.copy_from_slice(wanted.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut world = self.world()?;
        let nth = world.writes;
        world.writes += 1;
        world.planted(|fault| match fault {
            Fault::Write(n, kind) if *n == nth => Some(*kind),
            _ => None,
        })?;
        let end = offset as usize + bytes.len();
        let more = end.saturating_sub(world.disk.inodes[self.inode].seen.len());
        let disk = &world.disk;
        if more > 0 && !disk.has_room(disk.name_of(self.inode), more) {
            return Err(ErrorKind::StorageFull.into());
        }
        world.change(|disk| disk.inodes[self.inode].write(bytes, offset as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.world()?;
        let nth = world.syncs;
        world.syncs += 1;
        let planted = world.planted(|fault| match fault {
            Fault::Sync(n, kind) if *n == nth => Some(*kind),
            _ => None,
        });
        if planted.is_err() {
            world.disk.inodes[self.inode].lose_sync();
            return planted;
        }
        // A sync that the stop cut off may have written any part: that is for the crash to draw.
        if world.faults.contains(&Fault::Stop(world.changes)) {
            return world.change(|_| ());
        }
        world.change(|disk| disk.inodes[self.inode].sync())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.world()?
            .change(|disk| disk.inodes[self.inode].set_len(bytes as usize))
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.world()?.disk.inodes[self.inode].drop_cache();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
