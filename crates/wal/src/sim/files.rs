//! The simulated file system as its users see it.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::Disk;
use crate::fs::{Fs, FsFile, FsLock};

/// What of the unsynced content and names survives a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process died and the machine did not: everything is still seen, nothing more is
    /// durable than before.
    ProcessOnly,
    /// Power was lost: nothing survives.
    LoseAll,
    /// Power was lost: a subset of the sectors and names, drawn from the seed.
    Subset(u64),
    /// As `Subset`, and some of the unsynced sectors hold garbage.
    Garble(u64),
}

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
    /// Returns an empty file system; every directory exists.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
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

    /// Plants an error.
    pub fn plant(&self, fault: Fault) {
        self.world().faults.push(fault);
    }

    /// Limits the sum of the lengths of all files, in bytes, or lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world().disk.capacity = bytes;
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
        self.world().disk.used() as u64
    }

    /// Returns the paths of all files, ascending.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.world().disk.names.keys().cloned().collect()
    }

    /// Returns a file's content as a process sees it; `None` if there is no such file.
    #[must_use]
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let world = self.world();
        world
            .disk
            .names
            .get(path)
            .map(|inode| world.disk.inodes[*inode].seen.clone())
    }

    /// Flips the bits of `mask` in one byte; false if there is no such byte.
    #[must_use]
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) -> bool {
        let mut world = self.world();
        let Some(&inode) = world.disk.names.get(path) else {
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
            .get(path)
            .copied()
            .ok_or_else(|| ErrorKind::NotFound.into())
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
        if world.disk.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
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
        world.change(|disk| disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        world.inode(path)?;
        world.change(|disk| disk.unlink(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let world = self.alive()?;
        let inside = world
            .disk
            .names
            .keys()
            .filter_map(|path| path.strip_prefix(dir).ok());
        Ok(inside
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        // A sync that the stop cut off may have written any part: that is for the crash to draw.
        if world.faults.contains(&Fault::Stop(world.changes)) {
            return world.change(|_| ());
        }
        world.change(Disk::sync_names)
    }

    /// Every directory exists, with or without files in it.
    fn make_dir(&self, _dir: &Path) -> io::Result<()> {
        self.alive().map(drop)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        let inside = |path: &&PathBuf| path.starts_with(dir);
        let paths: Vec<PathBuf> = world.disk.names.keys().filter(inside).cloned().collect();
        for path in paths {
            world.change(|disk| disk.unlink(&path))?;
        }
        Ok(())
    }

    /// Whether there is a file in it: that is all that can be seen of a directory here.
    fn has_dir(&self, dir: &Path) -> bool {
        let world = self.world();
        world.disk.names.keys().any(|path| path.starts_with(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<FsLock> {
        let mut world = self.alive()?;
        if !world.locks.insert(path.to_owned()) {
            return Ok(FsLock::Busy("another opener".to_owned()));
        }
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
        if more > 0 && !world.disk.has_room(more) {
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
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_process_that_has_died_changes_no_file_of_the_next_one() {
        let (disk, from, to) = (SimFs::new(), Path::new("/from"), Path::new("/to"));
        let former = disk.of_process();
        former.create(from).unwrap();
        disk.crash(Crash::ProcessOnly);
        let present = disk.of_process();

        assert!(former.rename(from, to).is_err());
        assert!(former.remove(from).is_err());
        assert!(former.create(to).is_err());
        assert!(former.open(from).is_err());

        present.rename(from, to).unwrap();
        assert_eq!(disk.paths(), [to]);
    }
}
