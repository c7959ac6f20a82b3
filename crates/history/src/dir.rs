//! The directory of the history: one index in use, at most one that was damaged, and at most one that
//! may have been.
//!
//! ```text
//! history/index-7     the index in use
//! history/damaged     the last index that was damaged, for a later look
//! history/suspect     an index that may be sound: only the operator removes it
//! history/opening     what became of the attempts to open the index: see `trial`
//! history/probe       written and removed, to learn whether the disk works again
//! ```
//!
//! An index whose store failed is still locked by that store until the process ends, and the
//! store still works by path. So its files move into a directory with the next number.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::trial::Trial;

const PREFIX: &str = "index-";
const DAMAGED: &str = "damaged";
const SUSPECT: &str = "suspect";
const PROBE: &str = "probe";
/// What a probe writes: a disk or a quota that takes a byte may still be full.
const PROBE_BYTES: usize = 64 << 10;
/// Directories within an index that its store keeps locked, so that only their files can move.
const LOCKED: &str = "metadata";

/// Why an index is set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aside {
    /// Opening or reading it found corrupt data.
    Damaged,
    /// The process ended several times while it was opened; it is kept for inspection.
    Suspect,
}

/// Where the history of a node lies.
#[derive(Debug)]
pub(crate) struct Dir {
    root: PathBuf,
}

impl Dir {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The index to open. Completes what an earlier process began to move.
    pub(crate) fn current(&self) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.root)?;
        let numbers = self.numbers()?;
        let newest = self.index(numbers.last().copied().unwrap_or(1));
        for older in numbers.iter().rev().skip(1) {
            move_files(&self.index(*older), &newest)?;
        }
        self.take_in_unnumbered(&newest)?;
        Ok(newest)
    }

    /// Moves the files of the index out of reach of the store that failed. The next
    /// [`Dir::current`] is theirs.
    pub(crate) fn leave_store(&self) -> io::Result<()> {
        let Some(last) = self.numbers()?.last().copied() else {
            return Ok(());
        };
        move_files(&self.index(last), &self.index(last + 1))
    }

    /// Sets the index aside and returns where it lies now. The next [`Dir::current`] is empty.
    ///
    /// A damaged index takes the place of one that was set aside before. One that may be sound takes
    /// no other's place: it stays where it is if its place is taken, and that is the error.
    pub(crate) fn set_aside(&self, aside: Aside) -> io::Result<PathBuf> {
        let current = self.current()?;
        let next = self.numbers()?.last().copied().unwrap_or(0) + 1;
        let place = match aside {
            Aside::Damaged => self.root.join(DAMAGED),
            Aside::Suspect => self.root.join(SUSPECT),
        };
        if aside == Aside::Damaged {
            unless_gone(fs::remove_dir_all(&place))?;
        } else if place.exists() && current.exists() {
            if fs::read_dir(&current)?.next().is_none() {
                // It was set aside, and the process ended before that was written down.
                return Ok(place);
            }
            return Err(io::Error::other(format!(
                "the node ended twice while the index was opened, and {} holds one of which that is \
                 true as well; move that away to have this one set aside, or remove {} to have it \
                 opened again",
                place.display(),
                Trial::of(&self.root).file().display()
            )));
        }
        unless_gone(fs::rename(&current, &place))?;
        fs::create_dir(self.index(next))?;
        Ok(place)
    }

    /// Writes something durably and removes it.
    ///
    /// A disk that is still full, or still fails, shows it here, where it costs no store.
    pub(crate) fn probe(&self) -> io::Result<()> {
        let path = self.root.join(PROBE);
        let mut file = fs::File::create(&path)?;
        let written = file
            .write_all(&[0xA5; PROBE_BYTES])
            .and_then(|()| file.sync_all());
        // Also what a full disk left half written.
        fs::remove_file(&path)?;
        written
    }

    fn index(&self, number: u64) -> PathBuf {
        self.root.join(format!("{PREFIX}{number}"))
    }

    /// The numbers of the indices that are there, sorted.
    fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// An index that lies in the directory itself, as in earlier builds.
    fn take_in_unnumbered(&self, to: &Path) -> io::Result<()> {
        if !self.root.join(LOCKED).is_dir() {
            return Ok(());
        }
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name();
            let ours = [PROBE, DAMAGED, SUSPECT].iter().any(|kept| name == *kept)
                || Trial::is_mark(&name)
                || name.to_string_lossy().starts_with(PREFIX);
            if !ours {
                fs::rename(entry.path(), to.join(name))?;
            }
        }
        Ok(())
    }
}

/// Passes over what is not there.
fn unless_gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Moves everything in `from` to `to` and removes `from`. May be repeated after a crash.
fn move_files(from: &Path, to: &Path) -> io::Result<()> {
    let locked = to.join(LOCKED);
    fs::create_dir_all(&locked)?;
    if from.join(LOCKED).is_dir() {
        for entry in fs::read_dir(from.join(LOCKED))? {
            let entry = entry?;
            fs::rename(entry.path(), locked.join(entry.file_name()))?;
        }
        fs::remove_dir(from.join(LOCKED))?;
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    fs::remove_dir(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: PathBuf) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "bytes").unwrap();
    }

    #[test]
    fn the_files_of_a_failed_store_get_a_new_directory() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(temp.path().join("history"));
        let first = dir.current().unwrap();
        put(first.join("metadata/log_1"));
        put(first.join("slabs/64"));
        put(first.join("durability_cookie"));
        dir.leave_store().unwrap();
        let second = dir.current().unwrap();
        assert_ne!(first, second);
        assert!(!first.exists());
        for file in ["metadata/log_1", "slabs/64", "durability_cookie"] {
            assert!(second.join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn a_move_that_a_crash_cut_short_is_completed() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(temp.path().join("history"));
        put(temp.path().join("history/index-1/metadata/log_1"));
        put(temp.path().join("history/index-1/durability_cookie"));
        put(temp.path().join("history/index-2/metadata/log_2"));
        let current = dir.current().unwrap();
        assert!(current.ends_with("index-2"));
        for file in ["metadata/log_1", "metadata/log_2", "durability_cookie"] {
            assert!(current.join(file).is_file(), "{file}");
        }
        assert!(!temp.path().join("history/index-1").exists());
    }

    #[test]
    fn an_index_of_an_earlier_build_is_taken_in() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(temp.path().join("history"));
        put(temp.path().join("history/metadata/log_1"));
        put(temp.path().join("history/slabs/64"));
        let current = dir.current().unwrap();
        assert!(current.join("metadata/log_1").is_file());
        assert!(current.join("slabs/64").is_file());
    }

    #[test]
    fn at_most_one_damaged_index_is_kept() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(temp.path().join("history"));
        for n in 1..=3 {
            put(dir.current().unwrap().join(format!("{n}")));
            let damaged = dir.set_aside(Aside::Damaged).unwrap();
            assert!(damaged.join(format!("{n}")).is_file());
            assert_eq!(fs::read_dir(&damaged).unwrap().count(), 1);
            let next = dir.current().unwrap();
            assert_eq!(fs::read_dir(next).unwrap().count(), 0);
        }
        assert_eq!(fs::read_dir(dir.root()).unwrap().count(), 2);
    }

    #[test]
    fn an_index_that_may_be_sound_is_never_removed() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(temp.path().join("history"));
        put(dir.current().unwrap().join("first"));
        let suspect = dir.set_aside(Aside::Suspect).unwrap();
        // As after a crash before that was written down: there is nothing to be set aside.
        assert_eq!(dir.set_aside(Aside::Suspect).unwrap(), suspect);
        fs::remove_dir(dir.current().unwrap()).unwrap();
        assert_eq!(dir.set_aside(Aside::Suspect).unwrap(), suspect);
        let second = dir.current().unwrap().join("second");
        put(second.clone());
        let refused = dir.set_aside(Aside::Suspect).unwrap_err().to_string();
        assert!(refused.contains("move that away"), "{refused}");
        assert!(second.is_file());
        dir.set_aside(Aside::Damaged).unwrap();
        assert!(suspect.join("first").is_file());
    }

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(temp.path().to_owned());
        dir.probe().unwrap();
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
        let nowhere = Dir::new(temp.path().join("nowhere"));
        assert!(nowhere.probe().is_err());
    }
}
