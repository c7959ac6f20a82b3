//! A medium: files and directories by name, which names are durable, and how much room there is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::crash::Crash;
use super::inode::Inode;
use super::random::Random;

/// Files and directories by path.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    pub(super) files: BTreeMap<PathBuf, usize>,
    /// Without the root, which is always there.
    pub(super) dirs: BTreeSet<PathBuf>,
}

impl Names {
    pub(super) fn has_dir(&self, path: &Path) -> bool {
        path.parent().is_none() || path.as_os_str().is_empty() || self.dirs.contains(path)
    }

    /// A change whose subject did not survive changes nothing.
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Link(path, inode) => {
                self.files.insert(path.clone(), *inode);
            }
            Change::Unlink(path) => {
                self.files.remove(path);
            }
            Change::Rename(from, to) => {
                if let Some(inode) = self.files.remove(from) {
                    self.files.insert(to.clone(), inode);
                }
            }
            Change::MakeDir(path) => {
                self.dirs.insert(path.clone());
            }
            Change::RemoveDir(path) => {
                self.dirs.remove(path);
            }
        }
    }

    /// Drops what no directory leads to.
    fn drop_unreachable(&mut self) {
        let dirs = std::mem::take(&mut self.dirs);
        // Ascending, so that a directory comes behind the one it lies in.
        for dir in dirs {
            if dir.parent().is_some_and(|parent| self.has_dir(parent)) {
                self.dirs.insert(dir);
            }
        }
        let files = std::mem::take(&mut self.files);
        let reachable = |path: &PathBuf| path.parent().is_some_and(|parent| self.has_dir(parent));
        self.files = files
            .into_iter()
            .filter(|(path, _)| reachable(path))
            .collect();
    }
}

/// A change of names.
#[derive(Debug, Clone)]
enum Change {
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
    MakeDir(PathBuf),
    RemoveDir(PathBuf),
}

impl Change {
    /// The name that it changes; of a rename, the new one.
    fn path(&self) -> &Path {
        match self {
            Self::Link(path, _)
            | Self::Unlink(path)
            | Self::Rename(_, path)
            | Self::MakeDir(path)
            | Self::RemoveDir(path) => path,
        }
    }

    /// Whether it is an entry of `dir`: syncing that makes it durable.
    fn is_in(&self, dir: &Path) -> bool {
        self.path().parent() == Some(dir)
    }

    /// Whether it lies anywhere below one of `dirs`.
    fn is_below(&self, dirs: &BTreeSet<PathBuf>) -> bool {
        self.path()
            .ancestors()
            .skip(1)
            .any(|above| dirs.contains(above))
    }
}

/// A change that a crash may lose.
#[derive(Debug, Clone)]
struct Pending {
    change: Change,
    /// Its directory was synced since, but that directory's own entry was not: it survives if
    /// the directory does.
    synced: bool,
}

/// All files of one medium, and their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) inodes: Vec<Inode>,
    /// What a process sees.
    pub(super) names: Names,
    durable: Names,
    pending: Vec<Pending>,
    /// The greatest sum of the lengths of all files below a path, in bytes.
    pub(super) rooms: BTreeMap<PathBuf, u64>,
}

impl Disk {
    pub(super) fn create(&mut self, path: &Path) -> usize {
        let inode = self.inodes.len();
        self.inodes.push(Inode::default());
        self.change(Change::Link(path.to_owned(), inode));
        inode
    }

    pub(super) fn unlink(&mut self, path: &Path) {
        self.change(Change::Unlink(path.to_owned()));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        self.change(Change::Rename(from.to_owned(), to.to_owned()));
    }

    pub(super) fn make_dir(&mut self, path: &Path) {
        self.change(Change::MakeDir(path.to_owned()));
    }

    pub(super) fn remove_dir(&mut self, path: &Path) {
        self.change(Change::RemoveDir(path.to_owned()));
    }

    /// Makes the entries of `dir` durable, as far as `dir` itself is.
    pub(super) fn sync_dir(&mut self, dir: &Path) {
        // What was changed in a directory of the same name before it was made is another one's.
        let made =
            |pending: &Pending| matches!(&pending.change, Change::MakeDir(made) if made == dir);
        let since = self.pending.iter().rposition(made).unwrap_or(0);
        for pending in &mut self.pending[since..] {
            pending.synced |= pending.change.is_in(dir);
        }
        // Directories whose own entry a crash may lose, and with it all that is in them.
        let mut loose = BTreeSet::new();
        let durable = &mut self.durable;
        self.pending.retain(|pending| {
            let settled = pending.synced && !pending.change.is_below(&loose);
            if settled {
                durable.apply(&pending.change);
            } else if let Change::MakeDir(path) = &pending.change {
                loose.insert(path.clone());
            }
            !settled
        });
    }

    /// Returns true if a file at `path` may grow by `more` bytes.
    pub(super) fn has_room(&self, path: Option<&Path>, more: usize) -> bool {
        let limits = self
            .rooms
            .iter()
            .filter(|(dir, _)| path.is_none_or(|path| path.starts_with(dir)));
        let mut limits = limits.map(|(dir, room)| self.used_below(dir) + more as u64 <= *room);
        limits.all(|fits| fits)
    }

    /// The sum of all lengths below `dir`.
    pub(super) fn used_below(&self, dir: &Path) -> u64 {
        let files = self.names.files.iter();
        let below = files.filter(|(path, _)| path.starts_with(dir));
        below
            .map(|(_, inode)| self.inodes[*inode].seen.len() as u64)
            .sum()
    }

    /// The name of a file, if it has one.
    pub(super) fn name_of(&self, inode: usize) -> Option<&Path> {
        let mut files = self.names.files.iter();
        files
            .find(|(_, its)| **its == inode)
            .map(|(path, _)| path.as_path())
    }

    /// Loses what was not durable, as `crash` has it.
    pub(super) fn crash(&mut self, crash: Crash) {
        let mut random = Random(match crash {
            Crash::ProcessOnly => return,
            Crash::LoseAll => 0,
            Crash::Subset(seed) | Crash::Garble(seed) => seed,
        });
        let mut lost = BTreeSet::new();
        for Pending { change, synced } in std::mem::take(&mut self.pending) {
            let survives = synced || (crash != Crash::LoseAll && random.coin());
            let survives = survives && !change.is_below(&lost);
            if survives {
                self.durable.apply(&change);
            }
            if let Change::MakeDir(path) = change {
                if survives {
                    lost.remove(&path);
                } else {
                    lost.insert(path);
                }
            }
        }
        self.durable.drop_unreachable();
        self.names.clone_from(&self.durable);
        self.inodes
            .iter_mut()
            .for_each(|inode| inode.crash(crash, &mut random));
    }

    /// Makes every name durable as it is.
    pub(super) fn settle_names(&mut self) {
        self.durable.clone_from(&self.names);
        self.pending.clear();
    }

    fn change(&mut self, change: Change) {
        self.names.apply(&change);
        self.pending.push(Pending {
            change,
            synced: false,
        });
    }
}
