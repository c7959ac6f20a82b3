//! One refusal of the file system, met by the thread that prepares segments: it is tried again, and
//! costs neither the log nor its node anything.
#![allow(clippy::unwrap_used)]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::Bytes;
use ringfence_wal::{EntryId, Fs, FsFile, FsLock, LogEntry, Options, RealFs, Wal, WalError};
use tempfile::TempDir;

/// The operating system's files; some calls are refused.
#[derive(Default)]
struct Refusing {
    /// So many renames to a free file are refused for lack of space (`ENOSPC`).
    renames: AtomicU32,
    /// So many new files are refused for lack of descriptors (`EMFILE`).
    creates: AtomicU32,
    /// So many syncs of a directory are refused because it cannot be opened (`EMFILE`).
    dirs: AtomicU32,
}

fn once(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
        .is_ok()
}

impl Fs for Refusing {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        if once(&self.creates) {
            return Err(io::Error::from_raw_os_error(24));
        }
        RealFs.create(path)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn FsFile>> {
        RealFs.open(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let retires = to
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("free-");
        if retires && once(&self.renames) {
            return Err(io::Error::from_raw_os_error(28));
        }
        RealFs.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if once(&self.dirs) {
            return Err(io::Error::from_raw_os_error(24));
        }
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

fn options(ended: &Arc<AtomicBool>) -> Options {
    let ended = ended.clone();
    Options {
        segment_bytes: 64 * 1024,
        on_fatal: Box::new(move |_| ended.store(true, Ordering::SeqCst)),
        ..Options::new(*b"cluster-1 node-1")
    }
}

/// A log on such files, and whether it has ended.
fn open() -> (TempDir, Arc<Refusing>, Arc<AtomicBool>, Wal) {
    let dir = tempfile::tempdir().unwrap();
    let files = Arc::new(Refusing::default());
    let ended = Arc::<AtomicBool>::default();
    let (wal, _) = Wal::open_in(files.clone(), dir.path(), options(&ended)).unwrap();
    (dir, files, ended, wal)
}

fn append(wal: &Wal, index: u64) -> Result<(), WalError> {
    let (sender, receiver) = channel();
    let entry = LogEntry {
        id: EntryId { term: 1, index },
        payload: Bytes::from(vec![7; 30_000]),
    };
    let done = Box::new(move |result| sender.send(result).unwrap());
    wal.append(vec![entry], done);
    receiver.recv().unwrap()
}

/// The thread that prepares has done what it can.
#[allow(clippy::disallowed_methods)]
fn settle() {
    std::thread::sleep(Duration::from_millis(1_500));
}

#[test]
fn a_segment_that_finds_no_room_to_be_taken_back_leaves_no_hole() {
    let (dir, files, ended, wal) = open();
    for index in 1..=12 {
        append(&wal, index).unwrap();
    }
    files.renames.store(1, Ordering::SeqCst);
    wal.purge(EntryId { term: 1, index: 8 });
    append(&wal, 13).unwrap();
    settle();
    assert_eq!(files.renames.load(Ordering::SeqCst), 0, "it was refused");
    assert!(!ended.load(Ordering::SeqCst), "and the log went on");
    append(&wal, 14).unwrap();
    wal.close();
    let opened = Wal::open(dir.path(), options(&ended));
    let error = opened.err().map(|error| error.to_string());
    assert_eq!(error, None, "a node never starts again");
}

#[test]
fn a_moment_without_descriptors_does_not_end_the_log() {
    let (_dir, files, ended, wal) = open();
    append(&wal, 1).unwrap();
    settle();
    files.creates.store(1, Ordering::SeqCst);
    for index in 2..=13 {
        let done = append(&wal, index);
        assert!(done.is_ok(), "entry {index}: {}", done.unwrap_err());
    }
    assert_eq!(files.creates.load(Ordering::SeqCst), 0, "it was refused");
    assert!(!ended.load(Ordering::SeqCst));
}

/// A name that is not durable yet is not built on.
#[test]
fn a_directory_that_cannot_be_opened_is_synced_before_anything_else_is_done() {
    let (dir, files, ended, wal) = open();
    append(&wal, 1).unwrap();
    settle();
    files.dirs.store(3, Ordering::SeqCst);
    for index in 2..=13 {
        append(&wal, index).unwrap();
        wal.purge(EntryId {
            term: 1,
            index: index - 1,
        });
    }
    settle();
    assert_eq!(files.dirs.load(Ordering::SeqCst), 0, "it was refused");
    assert!(!ended.load(Ordering::SeqCst), "and the log went on");
    wal.close();
    let (_, recovered) = Wal::open(dir.path(), options(&ended)).unwrap();
    assert_eq!(recovered.last, Some(EntryId { term: 1, index: 13 }));
}
